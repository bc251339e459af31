// Reads what a daemon serves and sends as those do for whom it is meant: with Prometheus's parsers, Grafana's model of a
// dashboard, and an OpenTelemetry collector that receives over OTLP. Prints `passed CASE` and `FAILED CASE: why`.
package main

import (
	"fmt"
	"os"
)

var failed bool

// told prints how a case went.
func told(what string, err error) {
	if err != nil {
		failed = true
		fmt.Printf("FAILED %s: %v\n", what, err)
		return
	}
	fmt.Printf("passed %s\n", what)
}

func main() {
	switch arguments := os.Args[1:]; {
	case len(arguments) == 2 && arguments[0] == "prometheus":
		prometheus(arguments[1])
	case len(arguments) == 2 && arguments[0] == "grafana":
		grafana(arguments[1])
	case (len(arguments) == 2 || len(arguments) == 5) && arguments[0] == "collector":
		collector(arguments[1], arguments[2:])
	default:
		fmt.Fprintln(os.Stderr, "consumers prometheus URL | grafana DASHBOARD | collector ADDRESS [CERTIFICATE KEY CLIENTS_CA]")
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}
