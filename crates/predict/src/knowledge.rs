//! All that is known of one device.

use serde::{Deserialize, Serialize};

use crate::conformal::Misses;
use crate::device::{DeviceProfile, Rates};
use crate::interference::Interference;
use crate::memory::Memory;
use crate::prior::Prior;
use crate::rivalry::Rivalry;
use crate::runs::Runs;

/// What was learned of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Knowledge {
    profile: DeviceProfile,
    /// Whether the profile was given, or only guessed from a key.
    met: bool,
    pub(crate) runs: Runs,
    pub(crate) memory: Memory,
    pub(crate) interference: Interference,
    #[serde(default)]
    pub(crate) rivalry: Rivalry,
    pub(crate) latency_misses: Misses,
    pub(crate) memory_misses: Misses,
    pub(crate) used: u64,
}

impl Knowledge {
    pub(crate) fn of(profile: &DeviceProfile) -> Knowledge {
        let prior = Prior::of(profile);
        Knowledge {
            profile: sound(profile),
            met: true,
            runs: Runs::new(&prior),
            memory: Memory::new(&prior),
            interference: Interference::default(),
            rivalry: Rivalry::default(),
            latency_misses: Misses::default(),
            memory_misses: Misses::default(),
            used: 0,
        }
    }

    /// A device of which only measurements have come in.
    pub(crate) fn of_key(key: &str) -> Knowledge {
        let named = |backend: &&str| key.contains(*backend);
        let backend = ["webgpu", "webnn", "wasm", "cpu"].into_iter().find(named).unwrap_or("cpu");
        let profile = DeviceProfile {
            key: key.to_owned(),
            backend: backend.to_owned(),
            adapter: String::new(),
            software_adapter: false,
            slots: 1,
            threads: 1,
            cores: 1,
            rates: None,
        };
        Knowledge { met: false, ..Knowledge::of(&profile) }
    }

    /// Takes over the profile of the device if it says more than what was known. A later
    /// calibration does not replace an earlier one: what was learned is relative to that.
    pub(crate) fn meet(&mut self, profile: &DeviceProfile) {
        let says_more = self.profile.rates.is_none() && profile.rates.is_some();
        if self.met && !says_more {
            return;
        }
        let before = self.prior();
        self.profile = sound(profile);
        self.met = true;
        let prior = self.prior();
        if prior != before {
            self.runs.rebase(&prior);
        }
    }

    pub(crate) fn prior(&self) -> Prior {
        Prior::of(&self.profile)
    }
}

/// A profile that can be kept: a calibration that is no number is none.
fn sound(profile: &DeviceProfile) -> DeviceProfile {
    let numbers = |rates: &Rates| {
        let Rates { matmul_flops, memory_bytes_per_second, launch_seconds, .. } = *rates;
        let ways = [rates.upload_bytes_per_second, rates.download_bytes_per_second];
        let all = [matmul_flops, memory_bytes_per_second, launch_seconds].into_iter().chain(ways);
        all.into_iter().all(f64::is_finite)
    };
    DeviceProfile { rates: profile.rates.filter(numbers), ..profile.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_the_backend() {
        assert_eq!(Knowledge::of_key("webgpu ort 1.30 llvmpipe").profile.backend, "webgpu");
        assert_eq!(Knowledge::of_key("something").profile.backend, "cpu");
    }

    #[test]
    fn a_calibration_is_taken_over_once() {
        let mut known = Knowledge::of_key("cpu");
        let rates = known.prior().rates;
        let with = |flops| DeviceProfile {
            rates: Some(Rates { matmul_flops: flops, ..rates }),
            ..known.profile.clone()
        };
        let (first, second) = (with(1e11), with(2e11));
        known.meet(&first);
        assert_eq!(known.prior().rates.matmul_flops, 1e11);
        known.meet(&second);
        assert_eq!(known.prior().rates.matmul_flops, 1e11);
    }
}
