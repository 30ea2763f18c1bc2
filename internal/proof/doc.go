// Package proof holds the tests of killick's promises on Apache Kafka, run as processes
// (testenv/kafkaenv): what the embedded broker of the other tests cannot show is shown here. There
// is nothing to import.
//
// Tests that ask for little share one broker; those that kill brokers have their own. Rows of the
// table of faults, docs/faults.md, name the test that shows them. With KILLICK_FULL=1 (make faults)
// tests take their full number of rounds.
package proof
