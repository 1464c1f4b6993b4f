//! Tests of SQL in one program: each program links DataFusion, which takes most of a minute.

mod cached;
mod codec;
mod common;
mod directory;
mod layouts;
mod moved_filters;
mod mysql;
mod queries;
mod sent;
mod slt;
mod statements;
mod tpch;
