package core

// noCopy makes go vet (copylocks) report copies of the types that have it as a field: a copied
// tuple would outlive the execution that it is a view of. It takes no room at a struct's start.
type noCopy struct{}

// Lock and Unlock are what vet looks for; nobody calls them.
func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
