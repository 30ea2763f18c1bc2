package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version names the build as Go knows it: a tag for "go install ...@v1.2.3", the commit for a build in a checkout.
func version() string {
	v := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("killick %s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
