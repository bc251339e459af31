# What is called: bytes there, their count back, as bench.proto's Small and Sink.
@0xd1b7f0c4a2e95836;

interface Bench {
  sink @0 (data :Data) -> (value :Int64);
}
