//! Physical plans as bytes, for engines that run them in several processes.
//!
//! A [`Codec`] is for datafusion-distributed, Ballista and any other engine that takes a `PhysicalExtensionCodec`. The codec
//! of a worker opens nothing while it decodes: [`Codec::open`] looks at the whole plan first.

use std::sync::Arc;

use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{not_impl_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use rockmill_scan::ScanEngine;
use rockmill_storage::Rooted;

use crate::batches::check_batches;
use crate::caught::catch;
use crate::claims::{ForgetExec, KeptClaims};
use crate::scan::{PinExec, PinnedSnapshots, SentExec, decode_scan, encode_scan};
use crate::{aggregate, functions, protobuf};

/// First byte of a request to pin files. A scan begins with a brace.
const PIN: u8 = b'p';

/// First byte of a [`ForgetExec`]. A number of columns or a letter follows.
const FORGET: u8 = b'f';

/// Payload of Rockmill's own functions, which have names of DataFusion's.
const OWN: &[u8] = b"rockmill";

/// Payload of DataFusion's aggregate functions. Rockmill's functions of the same names have states of other types.
const THEIRS: &[u8] = b"datafusion";

/// Maximum bytes of a plan.
const MAX_BYTES: usize = 64 << 20;

/// Maximum number of nodes of a plan that a worker runs.
const MAX_NODES: usize = 10_000;

/// Maximum number of partitions of a node. Each has memory of its own.
const MAX_PARTITIONS: usize = 1 << 16;

/// Nodes without inputs that a worker runs, besides scans and rows in memory. Those of exchanges have their input in
/// another process.
const LEAVES: [&str; 6] = [
    "EmptyExec",
    "PlaceholderRowExec",
    "LazyMemoryExec",
    "NetworkShuffleExec",
    "NetworkCoalesceExec",
    "NetworkBroadcastExec",
];

/// Scans and Rockmill's functions as bytes.
#[derive(Debug, Clone)]
pub struct Codec {
    engine: Arc<ScanEngine>,
    worker: Option<Arc<Worker>>,
}

#[derive(Debug)]
struct Worker {
    root: Arc<Rooted>,
    pinned: PinnedSnapshots,
}

impl Codec {
    /// Scans that `engine` runs. Bytes name the files that are opened, so take them only from processes that may read them.
    #[must_use]
    pub fn new(engine: &Arc<ScanEngine>) -> Self {
        Self {
            engine: Arc::clone(engine),
            worker: None,
        }
    }

    /// The codec of a worker that opens databases beneath a root alone. Scans that it decodes have to be opened by
    /// [`Codec::open`]. The engine must read files through the same root.
    #[must_use]
    pub fn of_worker(engine: &Arc<ScanEngine>, root: Arc<Rooted>) -> Self {
        let pinned = PinnedSnapshots::default();
        Self {
            engine: Arc::clone(engine),
            worker: Some(Arc::new(Worker { root, pinned })),
        }
    }

    /// A plan as bytes.
    ///
    /// # Errors
    /// NotImplemented if a part of it has no form as bytes; those of [`encode_scan`].
    pub fn encode(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        // A sort with a limit has learned in a run which rows are too late. The next run would lack the last one.
        let plan = reset_plan_states(plan)?;
        let bytes = physical_plan_to_bytes_with_extension_codec(plan, self)?;
        Ok(bytes.to_vec())
    }

    /// The plan of [`Codec::encode`], with its files open.
    ///
    /// # Errors
    /// Plan if the bytes or their fields are too many; those of [`Codec::open`].
    pub fn decode(&self, bytes: &[u8], context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
        if bytes.len() > MAX_BYTES {
            return plan_err!(
                "a plan has {} bytes, and at most {MAX_BYTES} are read",
                bytes.len()
            );
        }
        protobuf::count_checked(bytes, check_batches).map_err(DataFusionError::Plan)?;
        let decode = || physical_plan_from_bytes_with_extension_codec(bytes, context, self);
        // Arrow's reader of constants panics on some bytes.
        let decoded = catch(decode);
        self.open(decoded.unwrap_or_else(|_| plan_err!("the bytes are not a plan"))?)
    }

    /// Opens the scans of a worker's plan; those of others are open. Nothing is opened if a worker's plan reads anything
    /// besides databases, memory and other processes, or writes.
    ///
    /// # Errors
    /// Plan, with the name of the node that is refused; those of [`decode_scan`].
    pub fn open(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(worker) = &self.worker else {
            return Ok(plan);
        };
        check(&plan)?;
        let opened = plan.transform_up(|node| {
            let (engine, root, pinned) = (&self.engine, &worker.root, &worker.pinned);
            if let Some(scan) = node.downcast_ref::<SentExec>() {
                return Ok(Transformed::yes(scan.open(engine, root, pinned)?));
            }
            if let Some(pin) = node.downcast_ref::<PinExec>() {
                let pin = pin.open(engine, root, pinned)?;
                return Ok(Transformed::yes(Arc::new(pin) as _));
            }
            Ok(Transformed::no(node))
        })?;
        Ok(opened.data)
    }
}

/// Refuses plans that read or write anything that a worker does not.
fn check(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut nodes = 0;
    plan.apply(|node| {
        nodes += 1;
        if nodes > MAX_NODES {
            return plan_err!("a worker runs plans of at most {MAX_NODES} nodes");
        }
        let partitions = node.output_partitioning().partition_count();
        if partitions > MAX_PARTITIONS {
            return plan_err!("a worker runs nodes of at most {MAX_PARTITIONS} partitions");
        }
        let name = node.name();
        let is_refused = match node.children().is_empty() {
            true => {
                let is_memory = |source: &DataSourceExec| {
                    source
                        .data_source()
                        .downcast_ref::<MemorySourceConfig>()
                        .is_some()
                };
                let is_memory = node.downcast_ref::<DataSourceExec>().is_some_and(is_memory);
                let is_scan = node.is::<SentExec>() || node.is::<PinExec>();
                !is_memory && !is_scan && !LEAVES.contains(&name)
            }
            false => name == "DataSinkExec",
        };
        if is_refused {
            let what = node.downcast_ref::<DataSourceExec>();
            let what = what.map_or_else(
                || name.to_owned(),
                |source| format!("{name} of {}", kind(source)),
            );
            return plan_err!(
                "a worker does not run {what}: it only reads RocksDB databases, and writes nothing"
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The kind of a source, such as csv.
fn kind(source: &DataSourceExec) -> String {
    use datafusion::datasource::physical_plan::FileScanConfig;
    let files = source.data_source().downcast_ref::<FileScanConfig>();
    files.map_or_else(
        || "another source".to_owned(),
        |files| format!("{} files", files.file_source().file_type()),
    )
}

/// The claims that a node keeps about the rows of an input.
fn kept_of(bytes: &[u8], input: &Arc<dyn ExecutionPlan>) -> Option<KeptClaims> {
    match bytes {
        b"f" => Some(KeptClaims::Filter),
        b"g" => Some(KeptClaims::GroupingSets),
        _ => {
            let columns = u32::from_le_bytes(bytes.try_into().ok()?) as usize;
            (columns <= input.schema().fields().len()).then_some(KeptClaims::Columns(columns))
        }
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_worker = self.worker.is_some();
        match bytes.split_first() {
            Some((&PIN, pin)) if is_worker => {
                let pin = serde_json::from_slice(pin);
                let pin = pin.map_err(|e| DataFusionError::Plan(e.to_string()))?;
                Ok(Arc::new(PinExec::new(pin, None)))
            }
            Some((&FORGET, kept)) => match inputs {
                [input] => {
                    let Some(kept) = kept_of(kept, input) else {
                        return plan_err!("the bytes are not a node that forgets claims");
                    };
                    Ok(Arc::new(ForgetExec::new(Arc::clone(input), kept)))
                }
                _ => plan_err!("a node that forgets claims has one input"),
            },
            _ if is_worker => Ok(Arc::new(SentExec::parse(bytes)?)),
            _ => decode_scan(bytes, &self.engine),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if let Some(pin) = node.downcast_ref::<PinExec>() {
            bytes.push(PIN);
            let written = serde_json::to_writer(bytes, &pin.pin);
            return written.map_err(|e| DataFusionError::Plan(e.to_string()));
        }
        if let Some(forget) = node.downcast_ref::<ForgetExec>() {
            bytes.push(FORGET);
            match forget.kept {
                KeptClaims::Columns(columns) => bytes.extend((columns as u32).to_le_bytes()),
                KeptClaims::Filter => bytes.push(b'f'),
                KeptClaims::GroupingSets => bytes.push(b'g'),
            }
            return Ok(());
        }
        match encode_scan(node.as_ref())? {
            Some(scan) => {
                bytes.extend(scan);
                Ok(())
            }
            None => not_impl_err!("{} is no scan of Rockmill", node.name()),
        }
    }

    fn try_encode_udf(&self, function: &ScalarUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if functions::is_own(function) {
            bytes.extend(OWN);
        }
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        let mut all = functions::all().into_iter();
        match all.find(|function| bytes == OWN && function.name() == name) {
            Some(function) => Ok(Arc::new(function)),
            None => plan_err!("there is no function {name}"),
        }
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if aggregate::is_own(function) {
            bytes.extend(OWN);
        } else if aggregate::is_known(function) {
            bytes.extend(THEIRS);
        }
        Ok(())
    }

    fn try_decode_udaf(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        let is_named = |function: &AggregateUDF| function.name() == name;
        let found = match bytes {
            OWN => aggregate::own().find(is_named).map(Arc::new),
            THEIRS => {
                let mut all = all_default_aggregate_functions().into_iter();
                all.find(|function| is_named(function))
            }
            _ => None,
        };
        found.map_or_else(|| plan_err!("there is no aggregate function {name}"), Ok)
    }
}
