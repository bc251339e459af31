package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// How long a collector waits for all it is to get.
const patience = 60 * time.Second

// collector runs one that receives at an address, over TLS if there are a certificate and its key, from clients with a
// certificate of that root alone.
func collector(address string, keys []string) {
	seen := &books{families: map[string]bool{}, spans: map[string]int{}}
	what := "collector"
	if len(keys) == 3 {
		what = "collector over TLS"
	}
	one, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "consumers", Version: "1"},
		Factories: seen.factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              []string{"here:all"},
			ProviderFactories: []confmap.ProviderFactory{provider(address, keys)},
		}},
	})
	if err != nil {
		told(what, err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- one.Run(context.Background()) }()
	for until := time.Now().Add(patience); time.Now().Before(until) && seen.lacks() != nil; {
		select {
		case err := <-ended:
			told(what, fmt.Errorf("it ended: %w", errors.Join(err, seen.lacks())))
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	told(what+", figures and spans", seen.lacks())
	told(what+", histograms add up", seen.wrong)
	one.Shutdown()
	<-ended
}

// books of what came.
type books struct {
	sync.Mutex
	families  map[string]bool
	spans     map[string]int
	exemplars int
	wrong     error
}

// lacks says what has not come yet.
func (b *books) lacks() error {
	b.Lock()
	defer b.Unlock()
	var lacking []error
	for _, family := range []string{"grpc.client.call.duration", "trunkline.component"} {
		if !b.families[family] {
			lacking = append(lacking, fmt.Errorf("no %s", family))
		}
	}
	for _, kind := range []string{"Sent", "Recv"} {
		if b.spans[kind] == 0 {
			lacking = append(lacking, fmt.Errorf("no span %s", kind))
		}
	}
	if b.exemplars == 0 {
		lacking = append(lacking, errors.New("no exemplar"))
	}
	return errors.Join(lacking...)
}

func (b *books) Start(context.Context, component.Host) error { return nil }
func (b *books) Shutdown(context.Context) error              { return nil }
func (b *books) Capabilities() consumer.Capabilities         { return consumer.Capabilities{} }

func (b *books) ConsumeMetrics(_ context.Context, all pmetric.Metrics) error {
	b.Lock()
	defer b.Unlock()
	for _, resource := range all.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				b.families[metric.Name()] = true
				if metric.Type() == pmetric.MetricTypeHistogram {
					b.addUp(metric)
				}
			}
		}
	}
	return nil
}

func (b *books) addUp(metric pmetric.Metric) {
	for _, point := range metric.Histogram().DataPoints().All() {
		sum := uint64(0)
		for _, count := range point.BucketCounts().AsRaw() {
			sum += count
		}
		if sum != point.Count() || point.BucketCounts().Len() != point.ExplicitBounds().Len()+1 {
			b.wrong = fmt.Errorf("%s: %d in buckets, %d in all", metric.Name(), sum, point.Count())
		}
		for _, exemplar := range point.Exemplars().All() {
			if !exemplar.TraceID().IsEmpty() {
				b.exemplars++
			}
		}
	}
}

func (b *books) ConsumeTraces(_ context.Context, all ptrace.Traces) error {
	b.Lock()
	defer b.Unlock()
	for _, resource := range all.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				kind, _, _ := strings.Cut(span.Name(), ".")
				if span.TraceID().IsEmpty() || span.SpanID().IsEmpty() || span.EndTimestamp() < span.StartTimestamp() {
					b.wrong = fmt.Errorf("%s has no ids, or ends before it begins", span.Name())
				}
				b.spans[kind]++
			}
		}
	}
	return nil
}

func (b *books) factories() (otelcol.Factories, error) {
	config := func() component.Config { return &struct{}{} }
	own := exporter.NewFactory(component.MustNewType("books"), config,
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			return b, nil
		}, component.StabilityLevelStable),
		exporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) {
			return b, nil
		}, component.StabilityLevelStable))
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap[exporter.Factory](own)
	return otelcol.Factories{Receivers: receivers, Exporters: exporters, Telemetry: otelconftelemetry.NewFactory()}, err
}

// here is where the configuration comes from.
type here struct{ config map[string]any }

func (h here) Retrieve(context.Context, string, confmap.WatcherFunc) (*confmap.Retrieved, error) {
	return confmap.NewRetrieved(h.config)
}
func (here) Scheme() string                 { return "here" }
func (here) Shutdown(context.Context) error { return nil }

func provider(address string, keys []string) confmap.ProviderFactory {
	http := map[string]any{"endpoint": address}
	if len(keys) == 3 {
		http["tls"] = map[string]any{"cert_file": keys[0], "key_file": keys[1], "client_ca_file": keys[2]}
	}
	pipeline := map[string]any{"receivers": []any{"otlp"}, "exporters": []any{"books"}}
	config := map[string]any{
		"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{"http": http}}},
		"exporters": map[string]any{"books": nil},
		"service": map[string]any{
			"telemetry": map[string]any{"metrics": map[string]any{"level": "none"}, "logs": map[string]any{"level": "error"}},
			"pipelines": map[string]any{"metrics": pipeline, "traces": pipeline},
		},
	}
	return confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return here{config} })
}
