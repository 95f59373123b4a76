//! The predictor: what it knows, what it says of a mix, and how it learns.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::conformal::{Misses, reach, shipped_latency, shipped_memory};
use crate::device::DeviceProfile;
use crate::estimate::{Estimate, Quantity, TermSource};
use crate::experts::Experts;
use crate::interference::Together;
use crate::knowledge::Knowledge;
use crate::measured::{LoadTime, Measured, RunTime};
use crate::memory::{self, MOST_BYTES};
use crate::mix::Mix;
use crate::outline::{Outline, outline};
use crate::rivalry::Ratio;
use crate::runs::{LEAST_SECONDS, MOST_SECONDS, is_time};
use crate::strategy::Strategy;
use crate::terms::Terms;

/// Devices that are kept.
pub(crate) const DEVICES: usize = 16;
/// Backends that are kept.
const BACKENDS: usize = 8;
/// Mixes that are kept to refine by.
pub(crate) const OBSERVATIONS: usize = 300;

/// Predicts what mixes will take, and learns from what they took.
///
/// Everything in it is bounded, and the same observations in the same order lead to the same
/// estimates. It can be kept as JSON and goes on from there.
///
/// ```
/// use holdfast_predict::Predictor;
/// let predictor = Predictor::new();
/// let kept = predictor.to_json();
/// assert_eq!(Predictor::from_json(&kept)?, predictor);
/// # Ok::<(), holdfast_predict::PredictorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predictor {
    pub(crate) devices: BTreeMap<String, Knowledge>,
    backends: BTreeMap<String, Shared>,
    pub(crate) experts: Views,
    pub(crate) observations: VecDeque<Observation>,
    turn: u64,
}

/// What a kept predictor could not be read for.
#[derive(Debug, thiserror::Error)]
#[error("what was kept of the predictor cannot be read: {0}")]
pub struct PredictorError(#[from] serde_json::Error);

/// What devices of one backend have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Shared {
    latency: Misses,
    memory: Misses,
}

/// Experts on time and on memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Views {
    pub(crate) latency: Experts,
    pub(crate) memory: Experts,
}

/// A mix that ran, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Observation {
    pub(crate) device: String,
    pub(crate) backend: String,
    pub(crate) strategy: Strategy,
    pub(crate) outline: Outline,
    /// The pace of the device just before.
    pub(crate) pace: f64,
    pub(crate) latency_seconds: f64,
    pub(crate) memory_bytes: Option<f64>,
}

impl Predictor {
    /// One that knows what ships and nothing else.
    pub fn new() -> Predictor {
        Predictor::default()
    }

    /// Reads what [`Predictor::to_json`] wrote.
    pub fn from_json(text: &str) -> Result<Predictor, PredictorError> {
        Ok(serde_json::from_str(text)?)
    }

    /// All that it knows.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Makes a device known before anything ran on it. Without that, its calibration is known
    /// only with the first mix that runs there.
    pub fn meet(&mut self, profile: &DeviceProfile) {
        self.device(&profile.key, Some(profile)).meet(profile);
    }

    /// What a mix will take.
    pub fn estimate(&self, mix: &Mix) -> Estimate {
        let known = self.known(mix);
        let mut terms = Some(Terms::default());
        let outline = outline(mix, &known, &mut terms);
        let together = known.interference.together(&outline, mix.arrangement());
        let latency = self.latency(mix, &known, &outline, &together);
        let memory = self.memory(mix, &known, &outline);
        let answers = mix.answers as f64;
        let mut terms = terms.unwrap_or_default();
        self.mix_terms(mix, &known, &outline, &together, &mut terms);
        Estimate {
            latency_seconds: latency,
            throughput_per_second: Quantity {
                value: answers / latency.value,
                low: answers / latency.high,
                high: answers / latency.low,
                source: latency.source,
            },
            memory_bytes: memory,
            observations: (outline.observations + known.interference.all_mixes()) as usize,
            terms: terms.into_vec(),
        }
    }

    /// Learns from a run of one segment.
    pub fn observe_run(&mut self, run: &RunTime) {
        let known = self.device(&run.device, None);
        let prior = known.prior();
        known.runs.observe(run, &mut known.interference.pace, &prior);
    }

    /// Learns from a load.
    pub fn observe_load(&mut self, load: &LoadTime) {
        let known = self.device(&load.device, None);
        let prior = known.prior();
        known.runs.observe_load(load, &known.interference.pace, &prior);
        if let Some(added) = load.memory_added_bytes {
            known.memory.observe_load(load.new_weight_bytes as f64, added);
        }
    }

    /// Learns from a mix that ran. Intervals learn from what was estimated before it ran: of runs
    /// of its pieces the predictor may have heard meanwhile.
    pub fn observe_mix(&mut self, mix: &Mix, estimate: &Estimate, measured: &Measured) {
        let seconds = measured.latency_seconds;
        if !is_time(seconds) {
            return;
        }
        let bytes = measured.memory_bytes.filter(|bytes| (1.0..=MOST_BYTES).contains(bytes));
        let outline = outline(mix, &self.known(mix), &mut None);
        let arrangement = mix.arrangement();
        let experts = self.experts.latency.log(&mix.device.backend, arrangement, outline.models);
        let miss = |quantity: &Quantity, measured: f64| (measured / quantity.value).ln();
        let (latency, memory) = (&estimate.latency_seconds, &estimate.memory_bytes);
        let latency_miss = miss(latency, seconds);
        let memory_miss = bytes.map(|bytes| miss(memory, bytes));
        let known = self.device(&mix.device.key, Some(&mix.device));
        known.meet(&mix.device);
        let pace = known.interference.pace.log();
        known.latency_misses.observe(latency.source, latency_miss);
        known.interference.observe(&outline, arrangement, seconds * (-experts).exp());
        if let (Some(bytes), Some(miss)) = (bytes, memory_miss) {
            known.memory_misses.observe(memory.source, miss);
            known.memory.observe(&outline.memory, bytes);
        }
        let shared = self.backend(&mix.device.backend);
        shared.latency.observe(latency.source, latency_miss);
        if let Some(miss) = memory_miss {
            shared.memory.observe(memory.source, miss);
        }
        self.remember(Observation {
            device: mix.device.key.clone(),
            backend: mix.device.backend.clone(),
            strategy: arrangement,
            outline,
            pace,
            latency_seconds: seconds,
            memory_bytes: bytes,
        });
    }

    /// Learns how strategies differ: the seconds of each in every round of a comparison on one
    /// workload. Rounds are compared within themselves, as what disturbs one disturbs all of it.
    pub fn observe_comparison(&mut self, ways: &[(&Mix, &[f64])]) {
        let plain = ways.iter().find(|(mix, _)| mix.arrangement() == Strategy::Sequential);
        let Some((plain, baseline)) = plain else { return };
        let sequential = outline(plain, &self.known(plain), &mut None);
        let mut seen = vec![Strategy::Sequential];
        for (mix, seconds) in ways {
            let strategy = mix.arrangement();
            // Strategies that come to the same were measured once for both.
            if seen.contains(&strategy) {
                continue;
            }
            let of = outline(mix, &self.known(mix), &mut None);
            let rounds = seconds.iter().zip(*baseline);
            let rounds = rounds.filter(|(way, plain)| is_time(**way) && is_time(**plain));
            let ratios: Vec<f64> = rounds.map(|(way, plain)| (way / plain).ln()).collect();
            if ratios.is_empty() || of.loads || sequential.loads {
                continue;
            }
            seen.push(strategy);
            let known = self.device(&mix.device.key, Some(&mix.device));
            known.rivalry.learn(strategy, &of, &sequential, &ratios);
        }
    }

    /// The seconds of each of these, ways to run one workload, as far as choosing between them goes;
    /// and how much of that comparisons on the device say, from nothing to all.
    pub(crate) fn side_by_side(&self, mixes: &[Mix], estimates: &[f64]) -> Vec<(f64, f64)> {
        let untold = || estimates.iter().map(|seconds| (*seconds, 0.0)).collect();
        let plain = mixes.iter().position(|mix| mix.arrangement() == Strategy::Sequential);
        let Some(plain) = plain else { return untold() };
        let known = self.known(&mixes[plain]);
        let sequential = outline(&mixes[plain], &known, &mut None);
        let seconds = mixes.iter().zip(estimates).map(|(mix, estimate)| {
            let strategy = mix.arrangement();
            if strategy == Strategy::Sequential {
                // It is what the others are compared with.
                return (*estimate, 1.0);
            }
            let of = outline(mix, &known, &mut None);
            let Ratio { log, trust } = known.rivalry.ratio(strategy, &of, &sequential);
            let trust = if of.loads || sequential.loads { 0.0 } else { trust };
            let estimated = (estimate / estimates[plain]).ln();
            (estimates[plain] * (trust * log + (1.0 - trust) * estimated).exp(), trust)
        });
        seconds.collect()
    }

    /// Mixes that are kept to refine by.
    pub fn kept_mixes(&self) -> usize {
        self.observations.len()
    }

    fn known(&self, mix: &Mix) -> Cow<'_, Knowledge> {
        match self.devices.get(&mix.device.key) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(Knowledge::of(&mix.device)),
        }
    }

    fn latency(
        &self,
        mix: &Mix,
        known: &Knowledge,
        outline: &Outline,
        together: &Together,
    ) -> Quantity {
        let backend = &mix.device.backend;
        let experts = self.experts.latency.log(backend, mix.arrangement(), outline.models);
        let seconds = within(together.seconds * experts.exp(), LEAST_SECONDS, MOST_SECONDS);
        let others = self.backends.get(backend).map(|shared| &shared.latency);
        let shipped = shipped_latency(outline.source);
        let reach = reach(&known.latency_misses, others, outline.source, shipped);
        reach.around(seconds, outline.source)
    }

    fn memory(&self, mix: &Mix, known: &Knowledge, outline: &Outline) -> Quantity {
        let backend = &mix.device.backend;
        let source = known.memory.source(&outline.memory);
        let experts = self.experts.memory.log(backend, mix.arrangement(), outline.models);
        let bytes = known.memory.bytes(&outline.memory, &known.prior()) * experts.exp();
        let others = self.backends.get(backend).map(|shared| &shared.memory);
        let reach = reach(&known.memory_misses, others, source, shipped_memory(source));
        reach.around(within(bytes, 1.0, MOST_BYTES), source)
    }

    /// What is there beyond the pieces.
    fn mix_terms(
        &self,
        mix: &Mix,
        known: &Knowledge,
        outline: &Outline,
        together: &Together,
        terms: &mut Terms,
    ) {
        let jobs = outline.jobs;
        let mixes = known.interference.mixes(mix.arrangement());
        let learned = if mixes >= 5 { TermSource::Fitted } else { TermSource::Prior };
        let shared = format!("{jobs} jobs, as they share {} slots", mix.device.slots);
        terms.add(shared, together.shared, "s", learned);
        terms.add(format!("overhead of {jobs} jobs"), together.overhead, "s", learned);
        let crowds = format!("sharing, as {} mixes showed", known.interference.all_mixes());
        terms.add(crowds, together.crowds, "×", learned);
        let traits = format!("interference of such jobs, {}, {mixes} mixes", mix.arrangement());
        terms.add(traits, together.traits, "×", learned);
        let pace = "pace of the device now".to_owned();
        terms.add(pace, together.pace, "×", TermSource::Measured);
        let (backend, models) = (&mix.device.backend, outline.models);
        if !self.experts.latency.is_silent() {
            let factor = self.experts.latency.log(backend, mix.arrangement(), models).exp();
            terms.add("experts on time".to_owned(), factor, "×", TermSource::Fitted);
        }
        let (start, parts) = known.memory.parts(&outline.memory, &known.prior());
        let (what, source) = match outline.memory.start {
            Some(_) => ("memory in use before", TermSource::Measured),
            None => ("memory with nothing loaded", known.memory.source(&outline.memory)),
        };
        terms.add(what.to_owned(), start, "bytes", source);
        let learned =
            if known.memory.mixes() >= 5 { TermSource::Fitted } else { TermSource::Prior };
        for (label, part) in memory::LABELS.iter().zip(parts).filter(|(_, part)| *part > 0.0) {
            terms.add(format!("memory: {label}"), part, "bytes", learned);
        }
        if !self.experts.memory.is_silent() {
            let factor = self.experts.memory.log(backend, mix.arrangement(), models).exp();
            terms.add("experts on memory".to_owned(), factor, "×", TermSource::Fitted);
        }
    }

    /// The device, to be added to. The one not used for longest makes room.
    fn device(&mut self, key: &str, profile: Option<&DeviceProfile>) -> &mut Knowledge {
        self.turn += 1;
        if !self.devices.contains_key(key) && self.devices.len() >= DEVICES {
            let oldest = self.devices.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.devices.remove(&oldest);
            }
        }
        let new = || profile.map_or_else(|| Knowledge::of_key(key), Knowledge::of);
        let known = self.devices.entry(key.to_owned()).or_insert_with(new);
        known.used = self.turn;
        known
    }

    fn backend(&mut self, backend: &str) -> &mut Shared {
        if !self.backends.contains_key(backend) && self.backends.len() >= BACKENDS {
            self.backends.pop_first();
        }
        self.backends.entry(backend.to_owned()).or_default()
    }

    fn remember(&mut self, observation: Observation) {
        if self.observations.len() == OBSERVATIONS {
            self.observations.pop_front();
        }
        self.observations.push_back(observation);
    }
}

fn within(value: f64, least: f64, most: f64) -> f64 {
    if value.is_finite() { value.clamp(least, most) } else { most }
}
