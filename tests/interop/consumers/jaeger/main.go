// Reads what `trunkline export --jaeger` has written as Jaeger's own model of its JSON, and says what is in it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	model "github.com/jaegertracing/jaeger/model/json"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	var page struct {
		Data   []model.Trace `json:"data"`
		Total  int           `json:"total"`
		Limit  int           `json:"limit"`
		Offset int           `json:"offset"`
		Errors []any         `json:"errors"`
	}
	reader := json.NewDecoder(file)
	reader.DisallowUnknownFields()
	if err := reader.Decode(&page); err != nil {
		fmt.Println("FAILED jaeger:", err)
		os.Exit(1)
	}
	for _, trace := range page.Data {
		spans := map[model.SpanID]model.Span{}
		for _, span := range trace.Spans {
			if _, there := trace.Processes[span.ProcessID]; !there || span.TraceID != trace.TraceID {
				fmt.Println("FAILED jaeger: a span of another trace or process:", span.SpanID)
				os.Exit(1)
			}
			spans[span.SpanID] = span
		}
		for _, span := range trace.Spans {
			for _, reference := range span.References {
				if above, there := spans[reference.SpanID]; there && above.StartTime > span.StartTime {
					fmt.Println("FAILED jaeger: a span before the one above it:", span.SpanID)
					os.Exit(1)
				}
			}
		}
	}
	if len(page.Data) == 0 {
		fmt.Println("FAILED jaeger: no trace")
		os.Exit(1)
	}
	fmt.Println("passed jaeger:", len(page.Data), "traces")
}
