//! Settings of the choice between strategies, for each backend: where estimates cannot tell
//! strategies apart, these decide.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::record::SettingChange;
use crate::strategy::Strategy;

/// Most models that a threshold can be set to.
pub(crate) const MOST_MODELS: usize = 64;
/// Most models that run at once in a group.
pub(crate) const MOST_BATCHED: usize = 32;
/// The least memory that can be set, in bytes: 64 MiB.
pub(crate) const LEAST_MEMORY: u64 = 64 << 20;
/// The most, in bytes: 1 TiB.
pub(crate) const MOST_MEMORY: u64 = 1 << 40;
/// Backends that are kept.
const BACKENDS: usize = 16;

/// One of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Up to so many models run in parallel.
    ParallelThreshold,
    /// From so many models on, they run one after the other.
    SequentialThreshold,
    /// So many models are in a group between the two.
    BatchingSize,
    /// Bytes that no strategy should go beyond.
    MemoryThreshold,
}

impl Setting {
    /// All of them.
    pub const ALL: [Setting; 4] = [
        Setting::ParallelThreshold,
        Setting::SequentialThreshold,
        Setting::BatchingSize,
        Setting::MemoryThreshold,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Setting::ParallelThreshold => "parallel_threshold",
            Setting::SequentialThreshold => "sequential_threshold",
            Setting::BatchingSize => "batching_size",
            Setting::MemoryThreshold => "memory_threshold",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Setting, SettingError> {
        let known = Setting::ALL.into_iter().find(|setting| setting.name() == text);
        known.ok_or_else(|| SettingError::Unknown(text.to_owned()))
    }
}

/// Why a setting was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is none of this name.
    #[error(
        "`{0}` is not a setting: use parallel_threshold, sequential_threshold, batching_size or \
         memory_threshold"
    )]
    Unknown(String),
    /// It cannot have this value.
    #[error("{setting} cannot be {value}: it goes from {least} to {most}")]
    OutOfRange {
        /// The setting.
        setting: Setting,
        /// What was asked for.
        value: u64,
        /// The least that is allowed.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Models would run in parallel and one after the other.
    #[error("parallel_threshold ({parallel}) has to be below sequential_threshold ({sequential})")]
    Crossed {
        /// What the one would be.
        parallel: usize,
        /// And the other.
        sequential: usize,
    },
}

/// The settings of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendSettings {
    /// Up to so many models run in parallel.
    pub parallel_threshold: usize,
    /// From so many models on, they run one after the other; groups run between the two.
    pub sequential_threshold: usize,
    /// So many models are in a group.
    pub batching_size: usize,
    /// Bytes that no strategy should go beyond.
    pub memory_threshold: u64,
}

impl BackendSettings {
    /// What ships for a backend.
    pub fn shipped(backend: &str) -> BackendSettings {
        let (parallel_threshold, sequential_threshold, batching_size) = match backend {
            // In parallel was best in five of six mixes of up to 6 models that `bench predict` ran.
            "cpu" => (8, 16, 4),
            "webgpu" | "webnn" => (2, 8, 4),
            _ => (3, 12, 4),
        };
        BackendSettings {
            parallel_threshold,
            sequential_threshold,
            batching_size,
            memory_threshold: 4 << 30,
        }
    }

    /// The strategy for so many models, where nothing better is known.
    pub fn strategy(&self, models: usize) -> Strategy {
        match models {
            few if few <= self.parallel_threshold => Strategy::Parallel,
            many if many >= self.sequential_threshold => Strategy::Sequential,
            _ => Strategy::Batched,
        }
    }

    /// The value of one of them.
    pub fn value(&self, setting: Setting) -> u64 {
        match setting {
            Setting::ParallelThreshold => self.parallel_threshold as u64,
            Setting::SequentialThreshold => self.sequential_threshold as u64,
            Setting::BatchingSize => self.batching_size as u64,
            Setting::MemoryThreshold => self.memory_threshold,
        }
    }

    /// The same with one of them changed.
    pub(crate) fn with(self, setting: Setting, value: u64) -> Result<Self, SettingError> {
        let (least, most) = match setting {
            Setting::ParallelThreshold => (0, MOST_MODELS as u64),
            Setting::SequentialThreshold => (1, MOST_MODELS as u64 + 1),
            Setting::BatchingSize => (1, MOST_BATCHED as u64),
            Setting::MemoryThreshold => (LEAST_MEMORY, MOST_MEMORY),
        };
        if !(least..=most).contains(&value) {
            return Err(SettingError::OutOfRange { setting, value, least, most });
        }
        let mut changed = self;
        match setting {
            Setting::ParallelThreshold => changed.parallel_threshold = value as usize,
            Setting::SequentialThreshold => changed.sequential_threshold = value as usize,
            Setting::BatchingSize => changed.batching_size = value as usize,
            Setting::MemoryThreshold => changed.memory_threshold = value,
        }
        let (parallel, sequential) = (changed.parallel_threshold, changed.sequential_threshold);
        match parallel < sequential {
            true => Ok(changed),
            false => Err(SettingError::Crossed { parallel, sequential }),
        }
    }
}

/// The settings of all backends.
///
/// ```
/// use holdfast_predict::{Setting, Settings};
/// use std::time::SystemTime;
/// let mut settings = Settings::default();
/// let change = settings.set("cpu", Setting::BatchingSize, 8, SystemTime::UNIX_EPOCH)?;
/// assert_eq!(change.map(|change| change.after), Some(8.0));
/// assert_eq!(settings.get("cpu").batching_size, 8);
/// # Ok::<(), holdfast_predict::SettingError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    by_backend: BTreeMap<String, BackendSettings>,
}

impl Settings {
    /// The settings of a backend.
    pub fn get(&self, backend: &str) -> BackendSettings {
        let own = self.by_backend.get(backend).copied();
        own.unwrap_or_else(|| BackendSettings::shipped(backend))
    }

    /// Sets one by hand. `None` if it had this value already.
    pub fn set(
        &mut self,
        backend: &str,
        setting: Setting,
        value: u64,
        now: SystemTime,
    ) -> Result<Option<SettingChange>, SettingError> {
        let reason = "set by hand".to_owned();
        self.change(backend, setting, value, reason, now)
    }

    /// Changes one, if that is allowed and a change.
    pub(crate) fn change(
        &mut self,
        backend: &str,
        setting: Setting,
        value: u64,
        reason: String,
        now: SystemTime,
    ) -> Result<Option<SettingChange>, SettingError> {
        let before = self.get(backend);
        let after = before.with(setting, value)?;
        if after == before {
            return Ok(None);
        }
        if !self.by_backend.contains_key(backend) && self.by_backend.len() >= BACKENDS {
            self.by_backend.pop_first();
        }
        self.by_backend.insert(backend.to_owned(), after);
        Ok(Some(SettingChange {
            timestamp: now,
            hardware_platform: backend.to_owned(),
            setting: setting.name().to_owned(),
            before: before.value(setting) as f64,
            after: value as f64,
            reason,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn every_backend_has_settings_that_could_be_set_by_hand() {
        for backend in ["cpu", "wasm", "webgpu", "webnn", "other"] {
            let shipped = BackendSettings::shipped(backend);
            for setting in Setting::ALL {
                assert_eq!(shipped.with(setting, shipped.value(setting)), Ok(shipped));
            }
        }
    }

    #[test]
    fn a_change_by_hand_is_reported_once_and_only_for_its_backend() {
        let mut settings = Settings::default();
        let change = settings.set("cpu", Setting::ParallelThreshold, 6, NOW);
        let change = change.expect("allowed").expect("a change");
        assert_eq!((change.before, change.after), (8.0, 6.0));
        assert_eq!(change.reason, "set by hand");
        assert_eq!(settings.set("cpu", Setting::ParallelThreshold, 6, NOW), Ok(None));
        assert_eq!(settings.get("wasm"), BackendSettings::shipped("wasm"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_changes_nothing() {
        let mut settings = Settings::default();
        for (setting, value) in [
            (Setting::BatchingSize, 0),
            (Setting::BatchingSize, 1000),
            (Setting::MemoryThreshold, 5),
            (Setting::ParallelThreshold, 16),
            (Setting::SequentialThreshold, 4),
        ] {
            settings.set("cpu", setting, value, NOW).expect_err(setting.name());
        }
        assert_eq!(settings, Settings::default());
        assert!("parallel".parse::<Setting>().is_err());
        assert_eq!("batching_size".parse(), Ok(Setting::BatchingSize));
    }

    #[test]
    fn thresholds_choose_the_strategy() {
        let settings = BackendSettings::shipped("cpu");
        assert_eq!(settings.strategy(1), Strategy::Parallel);
        assert_eq!(settings.strategy(8), Strategy::Parallel);
        assert_eq!(settings.strategy(9), Strategy::Batched);
        assert_eq!(settings.strategy(16), Strategy::Sequential);
    }

    #[test]
    fn keeps_a_bounded_number_of_backends() {
        let mut settings = Settings::default();
        for number in 0..100 {
            let backend = format!("backend {number}");
            settings.set(&backend, Setting::BatchingSize, 9, NOW).expect("allowed");
        }
        assert_eq!(settings.by_backend.len(), BACKENDS);
    }
}
