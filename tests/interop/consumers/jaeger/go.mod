module trunkline.test/jaeger

go 1.26

require github.com/jaegertracing/jaeger v1.62.0
