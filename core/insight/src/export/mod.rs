//! Records in formats of others: CSV, Parquet, Jaeger's JSON, and the trace event JSON that Perfetto opens.

mod columns;
mod csv;
mod jaeger;
mod parquet;
mod perfetto;
mod times;

pub use csv::csv;
pub use jaeger::jaeger;
pub use parquet::parquet;
pub use perfetto::perfetto;
