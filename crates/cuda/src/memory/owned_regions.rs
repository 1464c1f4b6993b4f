//! Regions of device memory, and what is allocated in them.

use std::ops::Range;

use super::regions::Region;
use crate::driver::DeviceMemory;

/// Regions in the order in which they were allocated.
#[derive(Debug, Default)]
pub struct OwnedRegions(Vec<OwnedRegion>);

#[derive(Debug)]
struct OwnedRegion {
    memory: DeviceMemory,
    region: Region,
}

impl OwnedRegion {
    fn addresses(&self) -> Range<usize> {
        let start = self.memory.as_ptr().addr();
        start..start + self.region.len() as usize
    }
}

impl OwnedRegions {
    /// Adds memory, in which nothing is allocated.
    pub fn add(&mut self, memory: DeviceMemory) {
        let region = Region::new(memory.len());
        self.0.push(OwnedRegion { memory, region });
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|owned| owned.region.len()).sum()
    }

    /// Bytes of the regions in which something is allocated.
    pub fn busy_bytes(&self) -> u64 {
        let busy = self.0.iter().filter(|owned| !owned.region.is_idle());
        busy.map(|owned| owned.region.len()).sum()
    }

    /// Whether a region has `bytes` bytes, of which some may be allocated.
    pub fn have_one_of(&self, bytes: u64) -> bool {
        self.0.iter().any(|owned| owned.region.len() >= bytes)
    }

    /// Allocates `bytes` in the first region with room for them, among those that have `within` bytes together.
    pub fn take(&mut self, bytes: u64, within: u64) -> Option<*mut u8> {
        let mut before = 0u64;
        self.0.iter_mut().find_map(|owned| {
            before += owned.region.len();
            let start = (before <= within).then(|| owned.region.take(bytes))??;
            Some(owned.memory.as_ptr().wrapping_add(start as usize))
        })
    }

    /// Frees the allocation of `bytes` at an address. False if it is in none of these regions.
    pub fn put_back(&mut self, address: usize, bytes: u64) -> bool {
        let Some(owned) = self
            .0
            .iter_mut()
            .find(|owned| owned.addresses().contains(&address))
        else {
            return false;
        };
        let start = (address - owned.addresses().start) as u64;
        owned.region.give_back(start..start + bytes);
        true
    }

    /// Takes out idle regions, the last ones first, until they have `bytes` bytes.
    pub fn take_idle(&mut self, bytes: u64) -> Vec<DeviceMemory> {
        let (mut taken, mut regions) = (0, Vec::new());
        for at in (0..self.0.len()).rev() {
            if taken >= bytes {
                break;
            }
            if self.0[at].region.is_idle() {
                taken += self.0[at].region.len();
                regions.push(self.0.remove(at).memory);
            }
        }
        regions
    }

    /// Takes out the region with this address.
    pub fn remove(&mut self, address: usize) -> Option<DeviceMemory> {
        let at = self
            .0
            .iter()
            .position(|owned| owned.addresses().contains(&address))?;
        Some(self.0.remove(at).memory)
    }

    /// Addresses of the regions, ascending, each with the bytes that are allocated there.
    pub fn addresses(&self) -> Vec<(Range<usize>, u64)> {
        let owned = self.0.iter();
        let owned = owned.map(|owned| (owned.addresses(), owned.region.allocated()));
        let mut addresses: Vec<_> = owned.collect();
        addresses.sort_unstable_by_key(|(region, _)| region.start);
        addresses
    }
}
