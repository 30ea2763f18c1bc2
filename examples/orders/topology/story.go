package topology

// limitCents is the highest amount that the fraud check lets pass.
const limitCents = 25_000

// Order is what comes in. Further fields of the JSON are not looked at.
type Order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Cents    int64  `json:"cents"`
}

// Status is what a customer is told.
type Status string

// All statuses.
const (
	Paid          Status = "paid"
	Rejected      Status = "rejected"
	PaymentFailed Status = "payment failed"
)

// Settled is an order whose outcome is known.
type Settled struct {
	Order  Order  `json:"order"`
	Status Status `json:"status"`
}

// Notification is what goes out, as JSON with exactly these fields.
type Notification struct {
	Order    int64  `json:"order"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Cents    int64  `json:"cents"`
	Status   Status `json:"status"`
}
