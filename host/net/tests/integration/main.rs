//! Shows what the network does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod datagrams;
mod ends;
mod http2;
mod http2_hostile;
mod http2_unix;
mod streams;
mod tls;
