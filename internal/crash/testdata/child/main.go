// The child of package crash's tests: it passes the points that its arguments name, and says so.
package main

import (
	"fmt"
	"os"

	"github.com/killick-io/killick/internal/crash"
)

func main() {
	for _, p := range os.Args[1:] {
		crash.At(crash.Point(p))
		fmt.Println("passed", p)
	}
	fmt.Println("enabled", crash.Enabled)
}
