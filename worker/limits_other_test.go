//go:build !linux

package worker_test

func hungryMain(func(string, ...any)) int        { return 99 }
func fewFilesMain(int, func(string, ...any)) int { return 99 }
