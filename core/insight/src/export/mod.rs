//! Records in formats of others: CSV, Parquet, Jaeger's JSON, and the trace event JSON that Perfetto opens.

mod columns;
mod csv;
mod jaeger;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod times;

pub use csv::csv;
pub use jaeger::jaeger;
#[cfg(feature = "parquet")]
pub use parquet::parquet;
pub use perfetto::perfetto;
