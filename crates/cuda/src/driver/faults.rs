//! A device with planned failures of calls and planned changes of memory: [`Target::Faulty`].
//!
//! [`Target::Faulty`]: crate::Target::Faulty

mod bit_address;

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::MutexGuard;

use rockmill_core::{CancelToken, Lock};
use rockmill_format::handle::BLOCK_TRAILER_SIZE;

use super::ffi::{self, Hooks, OutBlock};
use super::memory::OUT_OF_MEMORY;
pub use bit_address::{BitAddress, Moment, Region};
use bit_address::{REGIONS, told};

/// Kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// Getting device memory.
    Allocate = ffi::CALL_ALLOCATE,
    /// Allocating pinned host memory.
    Pin = ffi::CALL_PIN,
    /// Making a stream.
    Stream = ffi::CALL_STREAM,
    /// Making an event.
    Event = ffi::CALL_EVENT,
    /// Recording an event and waiting for it.
    Wait = ffi::CALL_WAIT,
    /// Copying and clearing memory.
    Copy = ffi::CALL_COPY,
    /// Launching a stage's kernels.
    Stage = ffi::CALL_STAGE,
}

impl Call {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Allocate,
        Self::Pin,
        Self::Stream,
        Self::Event,
        Self::Wait,
        Self::Copy,
        Self::Stage,
    ];
}

/// Memory and handles in use on the device; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Bytes of device memory.
    pub bytes: u64,
    /// Bytes of pinned host memory.
    pub pinned_bytes: u64,
    /// Streams.
    pub streams: i64,
    /// Events.
    pub events: i64,
}

#[derive(Debug, Default)]
struct State {
    calls: [u64; Call::ALL.len()],
    /// The first failing call of its kind; if the flag is set, all calls after it fail too.
    failure: Option<(Call, u64, bool)>,
    /// Size of the device memory, and whether the device reports it.
    memory_bytes: Option<(u64, bool)>,
    /// Maximum bytes held at a time.
    peak_bytes: u64,
    cancel: Option<(u64, CancelToken)>,
    flip: Option<(Moment, BitAddress)>,
    /// Number of failed calls and altered bits that were planned.
    struck: u64,
    memory: HashMap<usize, u64>,
    pinned: HashMap<usize, u64>,
    others: DeviceUsage,
    /// Addresses and bytes of the reported regions.
    told: [(usize, u64); REGIONS],
    /// Address in a region on the device to alter, and the bit.
    target: Option<(usize, u32)>,
}

static ALONE: Lock<()> = Lock::new(());
static STATE: Lock<Option<State>> = Lock::new(None);

fn with_state<T>(work: impl FnOnce(&mut State) -> T) -> T {
    work(STATE.lock().get_or_insert_default())
}

/// The plan for all devices of [`Target::Faulty`](crate::Target::Faulty) in this process. There is one at a
/// time.
#[derive(Debug)]
pub struct Faults {
    _alone: MutexGuard<'static, ()>,
}

impl Faults {
    /// Waits until no other plan is active, resets all counts, and plans no failure.
    #[must_use]
    pub fn none() -> Self {
        let alone = ALONE.lock();
        with_state(|state| *state = State::default());
        Self { _alone: alone }
    }

    /// Makes call number `nth` of a kind fail, counted from 0 and from now on.
    pub fn fail(&self, call: Call, nth: u64) {
        self.plan_failure(call, nth, false);
    }

    /// Makes that call fail and all calls of any kind after it, like a broken context.
    pub fn break_down(&self, call: Call, nth: u64) {
        self.plan_failure(call, nth, true);
    }

    fn plan_failure(&self, call: Call, nth: u64, for_good: bool) {
        with_state(|state| {
            state.failure = Some((call, state.calls[call as usize] + nth, for_good));
            state.struck = 0;
        });
    }

    /// Gives the device `bytes` of memory, without a report of the free part.
    pub fn limit_memory(&self, bytes: u64) {
        with_state(|state| state.memory_bytes = Some((bytes, false)));
    }

    /// Gives the device `bytes` of memory, which it reports like a GPU. Devices must be opened afterwards.
    pub fn simulate_memory(&self, bytes: u64) {
        with_state(|state| state.memory_bytes = Some((bytes, true)));
    }

    /// Maximum bytes of device memory held at a time.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        with_state(|state| state.peak_bytes)
    }

    /// Cancels `token` at call number `nth` of any kind, counted from 0 and from now on.
    pub fn cancel(&self, nth: u64, token: &CancelToken) {
        with_state(|state| state.cancel = Some((state.all_calls() + nth, token.clone())));
    }

    /// Alters a bit of the next task.
    pub fn flip(&self, moment: Moment, place: BitAddress) {
        with_state(|state| {
            state.flip = Some((moment, place));
            state.struck = 0;
        });
    }

    /// Ends all planned failures.
    pub fn end(&self) {
        with_state(|state| {
            (state.failure, state.memory_bytes) = (None, None);
            (state.cancel, state.flip) = (None, None);
        });
    }

    /// Number of failures since they were planned.
    #[must_use]
    pub fn struck(&self) -> u64 {
        with_state(|state| state.struck)
    }

    /// Number of calls of a kind so far.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        with_state(|state| state.calls[call as usize])
    }

    /// Number of calls of all kinds so far.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        with_state(|state| state.all_calls())
    }

    /// Memory and handles in use on the device.
    #[must_use]
    pub fn usage(&self) -> DeviceUsage {
        with_state(|state| DeviceUsage {
            bytes: state.held_bytes(),
            pinned_bytes: state.pinned.values().sum(),
            ..state.others
        })
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn all_calls(&self) -> u64 {
        self.calls.iter().sum()
    }

    fn held_bytes(&self) -> u64 {
        self.memory.values().sum()
    }

    /// Counts a call and returns the error with which it fails, or 0.
    fn fails(&mut self, call: Call, bytes: u64) -> c_int {
        if let Some((_, token)) = self
            .cancel
            .take_if(|(nth, _)| self.calls.iter().sum::<u64>() >= *nth)
        {
            token.cancel();
            self.struck += 1;
        }
        let number = self.calls[call as usize];
        self.calls[call as usize] += 1;
        let is_too_much = call == Call::Allocate
            && (self.memory_bytes).is_some_and(|(most, _)| self.held_bytes() + bytes > most);
        let is_planned = match self.failure {
            Some((kind, nth, for_good)) if kind == call && number >= nth => {
                self.failure = for_good.then_some((kind, nth, for_good));
                true
            }
            Some((kind, nth, true)) => self.calls[kind as usize] > nth,
            _ => false,
        };
        self.struck += u64::from(is_planned || is_too_much);
        match (is_planned, is_too_much) {
            (true, _) => PLANNED,
            (false, true) => OUT_OF_MEMORY,
            (false, false) => 0,
        }
    }

    /// The address of a place of the images on the device.
    fn find(&self, images: usize, blocks: &[OutBlock], place: BitAddress) -> usize {
        /// Bytes at the start of a filter that are altered at most.
        const FILTER_BYTES: u64 = 64 + 5 + BLOCK_TRAILER_SIZE as u64;
        const RESTARTS_BYTES: u64 = 8;
        let first = &blocks[0];
        let of_file = blocks.iter().take_while(|block| block.file == first.file);
        let last = of_file.last().unwrap_or(first);
        let end = |block: &OutBlock| block.at + u64::from(block.size);
        let (start, len) = match place.region {
            Region::Entries => (first.at, u64::from(first.size) - RESTARTS_BYTES),
            Region::Second => (blocks[1].at, u64::from(blocks[1].size)),
            Region::Restarts => (end(first) - RESTARTS_BYTES, RESTARTS_BYTES),
            Region::Trailer => (end(first), BLOCK_TRAILER_SIZE as u64),
            Region::Filter => (end(last) + BLOCK_TRAILER_SIZE as u64, FILTER_BYTES),
            Region::Index
            | Region::Edges
            | Region::Sizes
            | Region::Found
            | Region::NextKey
            | Region::Rows
            | Region::Merged => {
                let (address, bytes) = self.told[told(place.region).unwrap_or_default() as usize];
                return address + (place.byte % bytes) as usize;
            }
        };
        images + (start + place.byte % len) as usize
    }
}

/// Error number of all planned failures.
const PLANNED: c_int = 999;

extern "C" fn before(kind: u32, bytes: u64) -> c_int {
    with_state(|state| state.fails(Call::ALL[kind as usize], bytes))
}

extern "C" fn got(kind: u32, thing: *mut c_void, bytes: u64) {
    with_state(|state| state.account(kind, thing, Some(bytes)));
}

/// Bytes of device memory, all or the free ones; 0 if the device does not report them.
extern "C" fn memory(is_free: u32) -> u64 {
    with_state(|state| match state.memory_bytes {
        Some((most, true)) if is_free == 0 => most,
        Some((most, true)) => most.saturating_sub(state.held_bytes()),
        _ => 0,
    })
}

extern "C" fn gone(kind: u32, thing: *mut c_void) {
    with_state(|state| state.account(kind, thing, None));
}

impl State {
    /// Records an allocation, or a release.
    fn account(&mut self, kind: u32, thing: *mut c_void, got: Option<u64>) {
        let change = |map: &mut HashMap<usize, u64>| match got {
            Some(bytes) => _ = map.insert(thing.addr(), bytes),
            None => {
                _ = map
                    .remove(&thing.addr())
                    .expect("released without an allocation")
            }
        };
        let one = if got.is_some() { 1 } else { -1 };
        match Call::ALL[kind as usize] {
            Call::Allocate => {
                change(&mut self.memory);
                self.peak_bytes = self.peak_bytes.max(self.held_bytes());
            }
            Call::Pin => change(&mut self.pinned),
            Call::Stream => self.others.streams += one,
            Call::Event => self.others.events += one,
            Call::Wait | Call::Copy | Call::Stage => {}
        }
    }

    fn flip_at(&mut self, address: usize, bit: u32) {
        // SAFETY: the address is of a byte of the host's memory, on which the kernels' host target works. No other code
        // uses it during the call.
        unsafe { *(std::ptr::with_exposed_provenance_mut::<u8>(address)) ^= 1 << bit };
        self.struck += 1;
        self.flip = None;
        self.target = None;
    }
}

extern "C" fn made(region: u32, at: *const c_void, bytes: u64) {
    let address = at.expose_provenance();
    with_state(|state| {
        state.told[region as usize] = (address, bytes);
        let Some((moment, place)) = state.flip else {
            return;
        };
        let address = address + (place.byte % bytes) as usize;
        match moment {
            _ if told(place.region) != Some(region) => {}
            Moment::Unsealed => state.flip_at(address, place.bit),
            Moment::CopiedBack => state.target = Some((address, place.bit)),
            Moment::Finished => {}
        }
    });
}

extern "C" fn written(at: u32, images: *const u8, blocks: *const OutBlock, n: u64) {
    // SAFETY: the caller has `n` blocks in the host's memory.
    let blocks = unsafe { std::slice::from_raw_parts(blocks, n as usize) };
    with_state(|state| {
        let Some((moment, place)) = state.flip else {
            return;
        };
        let is_sealed = at == ffi::MOMENT_FINISHED;
        // An index block is reported by itself before it is sealed.
        if !is_sealed && (moment != Moment::Unsealed || told(place.region).is_some()) {
            return;
        }
        let address = state.find(images.expose_provenance(), blocks, place);
        match moment {
            Moment::Unsealed if is_sealed => {}
            Moment::CopiedBack => state.target = Some((address, place.bit)),
            Moment::Unsealed | Moment::Finished => state.flip_at(address, place.bit),
        }
    });
}

extern "C" fn copied_back(to: *mut c_void, from: *const c_void, bytes: u64) {
    with_state(|state| {
        let from = from.addr();
        if let Some((address, bit)) = state.target
            && (from..from + bytes as usize).contains(&address)
        {
            state.flip_at(to.expose_provenance() + (address - from), bit);
        }
    });
}

/// The hooks that `faulty.cpp` calls.
pub static HOOKS: Hooks = Hooks {
    before,
    got,
    gone,
    memory,
    copied_back,
    made,
    written,
};
