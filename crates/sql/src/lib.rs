//! SQL over RocksDB: its column families as tables of DataFusion.
//!
//! | Module | Contents |
//! |---|---|
//! | `table` | A column family as a table; statements that see one snapshot |
//! | `planner` | The column families that a statement reads |
//! | `prepared` | Statements of PREPARE |
//! | `scan` | The physical plan of a scan |
//! | `aggregate` | Aggregates that the scan computes |
//! | `guard` | Filters run before what they protect |
//! | `alternatives` | Filters with many alternatives |
//! | `distinct` | `count` beside `count(distinct ..)` |
//! | `pushdown` | Filters that DataFusion moves |
//! | `claims` | Orders, constants and unique columns that DataFusion claims |
//! | `program`, `ranges` | Filters as programs, and the ranges of keys that they allow |
//! | `stored` | Constants and batches between Arrow and scans |
//! | `functions` | Functions over bytes |
//! | `extremes`, `sums` | `min` and `max`, and `sum` |
//! | `external` | CREATE EXTERNAL TABLE .. STORED AS ROCKSDB |
//! | `mysql` | Tables of MyRocks, as CREATE TABLE and its dictionary describe them |
//! | `files` | The tables `rocksdb_files` and `rocksdb_families` |
//! | `read_only` | RocksDB's iterators over a directory |
//! | `joins` | Joins that have no room |
//! | `cooperative` | Joins that can be stopped |
//! | `size` | Columns that are too long for one batch |
//! | `memory` | How much memory queries may take, and where they spill |
//! | `codec` | Physical plans as bytes |
//! | `caught` | Panics of a plan as its errors |
//! | `rule` | Rules for physical plans |
//! | `session` | Sessions with all of it |
//! | `statements` | Texts of several statements |

#![forbid(unsafe_code)]

mod aggregate;
mod alternatives;
mod batches;
mod caught;
mod claims;
mod codec;
mod computed_keys;
mod cooperative;
mod dependencies;
mod distinct;
mod external;
mod extremes;
mod files;
mod filters;
mod functions;
mod guard;
mod in_list;
mod in_subquery;
mod intervals;
mod joins;
mod left_using;
mod memory;
mod mysql;
mod null_equality;
mod outer_types;
mod planner;
mod prepared;
mod program;
pub mod protobuf;
mod pushdown;
mod ranges;
mod read_only;
mod rule;
mod scan;
mod session;
mod set_operations;
mod size;
pub mod statements;
mod stored;
mod subqueries;
mod sums;
mod table;
mod top_rows;
mod windows;
mod writes;

pub use caught::{answered, is_panic_caught, with_caught_panics};
pub use claims::is_forgetting;
pub use codec::Codec;
pub use joins::plan_query;
pub use memory::{Shares, SpillError, configured, runtime};
pub use read_only::ReadOnly;
pub use rule::Rule;
pub use scan::{
    DatabaseLocation, PinGuard, PinRequest, PinSnapshots, ScanExec, ScanProgress, Tasks,
    decode_scan, encode_scan, left_out, progress, scan_tasks, shard_of, split_scan,
};
pub use scan::{PinReply, pin_plan};
pub use scan::{SCAN_BYTES, SCAN_ROWS, SCAN_TIME};
pub use session::{refuse_writes, session, session_by, session_in, state, with_rockmill};
pub use size::{is_panic_of_size, is_too_long, observe_panic, too_long};
pub use table::{Reads, RocksTable, Scans, pinned};
