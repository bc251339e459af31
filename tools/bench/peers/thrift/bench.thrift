// What is called: bytes there, their count back, as bench.proto's Small and Sink.
namespace cpp bench

service Bench {
  i64 Sink(1: binary data)
}
