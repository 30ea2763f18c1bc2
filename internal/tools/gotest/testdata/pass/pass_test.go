package pass

import "fmt"

func Example() {
	fmt.Println("hello")
	// Output: hello
}
