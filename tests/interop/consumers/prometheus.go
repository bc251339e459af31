package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
)

// What Prometheus says that it takes: its own format, and OpenMetrics.
var accepted = map[string]string{
	"text format": "text/plain;version=0.0.4",
	"OpenMetrics": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
}

// prometheus reads the page as each of its parsers does.
func prometheus(url string) {
	for format, accept := range accepted {
		told("prometheus, "+format, page(url, accept, format == "OpenMetrics"))
	}
}

func page(url, accept string, openMetrics bool) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	kind := answer.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "application/openmetrics-text") != openMetrics {
		return fmt.Errorf("asked for %q, it is %q", accept, kind)
	}
	// Without a type to fall back to, as a scrape is that trusts nobody.
	reader, err := textparse.New(body, kind, nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	seen, exemplars := map[string]bool{}, 0
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var of labels.Labels
		reader.Labels(&of)
		if series := of.String(); seen[series] {
			return fmt.Errorf("%s is there twice", series)
		} else {
			seen[series] = true
		}
		var one exemplar.Exemplar
		for reader.Exemplar(&one) {
			exemplars++
			if one.Labels.Get("trace_id") == "" {
				return fmt.Errorf("an exemplar of %s has no trace", of)
			}
		}
	}
	if len(seen) < 100 {
		return fmt.Errorf("%d series", len(seen))
	}
	if openMetrics && exemplars == 0 {
		return errors.New("no exemplar")
	}
	return nil
}

// grafana reads the dashboard by the model that Grafana publishes, strictly, and what it asks Prometheus for by PromQL's
// own grammar.
func grafana(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		told("grafana, file", err)
		return
	}
	var model dashboard.Dashboard
	// It returns its list of errors even if that is empty.
	if err = model.UnmarshalJSONStrict(text); err != nil && err.Error() == "" {
		err = model.Validate()
	}
	told("grafana, model of a dashboard", err)

	var file any
	told("grafana, JSON", json.Unmarshal(text, &file))
	asked := expressions(file)
	if len(asked) == 0 {
		err = errors.New("it asks for nothing")
	} else {
		err = nil
	}
	language := parser.NewParser(parser.Options{})
	for _, expression := range asked {
		// Grafana puts these in before it asks.
		filled := strings.NewReplacer("$__rate_interval", "5m", "$__range", "5m", "$__interval", "1m").Replace(expression)
		if _, wrong := language.ParseExpr(filled); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", expression, wrong))
		}
	}
	told(fmt.Sprintf("grafana, %d expressions of PromQL", len(asked)), err)
}

// expressions of all targets, wherever they stand.
func expressions(of any) []string {
	var found []string
	switch of := of.(type) {
	case map[string]any:
		if expression, is := of["expr"].(string); is {
			found = append(found, expression)
		}
		for _, below := range of {
			found = append(found, expressions(below)...)
		}
	case []any:
		for _, below := range of {
			found = append(found, expressions(below)...)
		}
	}
	return found
}
