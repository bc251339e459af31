//! Shows what the exporter does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod exporter;
mod over_tls;
mod support;
