//! What single runs and loads take on one device, from what was measured there.

use holdfast_graph::Digest;
use serde::{Deserialize, Serialize};

use crate::estimate::TermSource;
use crate::features::Features;
use crate::fit::Fit;
use crate::measured::{LoadTime, RunTime};
use crate::pace::Pace;
use crate::prior::Prior;
use crate::ridge::{Coefficient, Ridge};
use crate::segments::Segments;
use crate::work::{Likeness, Work};

/// Runs between two fits, if none of them was of a new size.
const REFIT_EVERY: u32 = 16;
/// Segments that a fit needs before it counts as one.
const FITTED_SEGMENTS: usize = 2;
/// How much of what was learned of transfers and loads stays with each new observation.
const KEEP: f64 = 0.98;

/// No time is shorter.
pub(crate) const LEAST_SECONDS: f64 = 1e-9;
/// No time is longer: some thirty years.
pub(crate) const MOST_SECONDS: f64 = 1e9;

/// Seconds, where they come from, and how many runs are behind them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) seconds: f64,
    pub(crate) source: TermSource,
    pub(crate) observations: u64,
}

/// What is known of runs and loads on a device. All seconds are at the pace of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Runs {
    pub(crate) segments: Segments,
    pub(crate) fit: Fit,
    transfer: Ridge,
    load: Ridge,
    first: Ridge,
    unfitted: u32,
}

impl Runs {
    pub(crate) fn new(prior: &Prior) -> Runs {
        let factor = Coefficient { prior: 1.0, spread: 5.0, low: 0.0, high: 100.0 };
        Runs {
            segments: Segments::default(),
            fit: Fit::shipped(prior),
            transfer: Ridge::new(vec![factor; 3]),
            load: Ridge::new(vec![factor; 2]),
            first: Ridge::new(vec![factor; 2]),
            unfitted: 0,
        }
    }

    /// Starts over with another prior, but keeps what was measured of segments.
    pub(crate) fn rebase(&mut self, prior: &Prior) {
        for learned in [&mut self.transfer, &mut self.load, &mut self.first] {
            learned.reset();
        }
        self.refit(prior);
    }

    /// What the engine takes for a run that has the device for itself.
    pub(crate) fn compute(&self, segment: &Digest, features: &Features) -> Part {
        if let Some(history) = self.segments.get(segment) {
            if let Some(size) = history.size(features)
                && let Some(seconds) = size.compute.centre()
            {
                let observations = size.compute.count();
                return Part { seconds, source: TermSource::Measured, observations };
            }
            if let Some((seconds, observations)) = history.between(features, &self.fit) {
                return Part { seconds, source: TermSource::Interpolated, observations };
            }
        }
        let (seconds, _) = self.fit.seconds(&Work::of(features), &Likeness::of(features));
        let source = match self.fit.segments() >= FITTED_SEGMENTS {
            true => TermSource::Fitted,
            false => TermSource::Prior,
        };
        Part { seconds, source, observations: 0 }
    }

    /// What its tensors take on their way.
    pub(crate) fn transfer(&self, segment: &Digest, features: &Features, prior: &Prior) -> Part {
        let size = self.segments.get(segment).and_then(|history| history.size(features));
        if let Some(size) = size
            && let Some(seconds) = size.transfer.centre()
        {
            let observations = size.transfer.count();
            return Part { seconds, source: TermSource::Measured, observations };
        }
        let seconds = self.transfer.predict(&transfer_inputs(features, prior));
        Part { seconds, source: source(&self.transfer), observations: 0 }
    }

    /// What loading takes.
    pub(crate) fn load(&self, segment: &Digest, new_bytes: f64, prior: &Prior) -> Part {
        let own = self.segments.get(segment).and_then(|history| history.load.centre());
        let seconds = own.unwrap_or_else(|| self.load.predict(&load_inputs(new_bytes, prior)));
        let source = own.map_or(source(&self.load), |_| TermSource::Measured);
        Part { seconds, source, observations: 0 }
    }

    /// What the first run after loading takes more than another one.
    pub(crate) fn first_extra(&self, segment: &Digest, compute: f64, prior: &Prior) -> Part {
        let own = self.segments.get(segment).and_then(|history| history.first.centre());
        let fitted = || self.first.predict(&first_inputs(compute, prior));
        let seconds = (own.unwrap_or_else(fitted) - compute).max(0.0);
        let source = own.map_or(source(&self.first), |_| TermSource::Measured);
        Part { seconds, source, observations: 0 }
    }

    /// Learns from a run. Only one that had the device for itself says what it takes.
    pub(crate) fn observe(&mut self, run: &RunTime, pace: &mut Pace, prior: &Prior) {
        if !is_time(run.compute_seconds) {
            return;
        }
        let RunTime { segment, features, .. } = run;
        let history = self.segments.touch(*segment);
        history.held_bytes = history.held_bytes.max(features.peak_activation_bytes as f64);
        if run.first {
            let seconds = run.compute_seconds * (-pace.log()).exp();
            let compute = self.compute(segment, features).seconds;
            self.learn_first(*segment, seconds, compute, prior);
            return;
        }
        if !run.alone {
            return;
        }
        let known = self.compute(segment, features);
        if known.source == TermSource::Measured && known.observations >= 3 {
            let surprise = (run.compute_seconds / known.seconds).ln() - pace.log();
            pace.observe_run(number(segment), surprise);
        }
        let slower = (-pace.log()).exp();
        let transfer = (run.transfer_seconds + run.readback_seconds) * slower;
        let (size, new) = self.segments.touch(*segment).touch(features);
        size.compute.push(run.compute_seconds * slower);
        size.transfer.push(transfer);
        let inputs = transfer_inputs(features, prior);
        learn(&mut self.transfer, &inputs, transfer, 5e-5);
        self.unfitted += 1;
        if new || self.unfitted >= REFIT_EVERY {
            self.refit(prior);
        }
    }

    /// Learns from a load: what ran before is no longer held.
    pub(crate) fn observe_load(&mut self, load: &LoadTime, pace: &Pace, prior: &Prior) {
        let history = self.segments.touch(load.segment);
        history.held_bytes = 0.0;
        let slower = (-pace.log()).exp();
        if is_time(load.load_seconds) {
            history.load.push(load.load_seconds * slower);
            let inputs = load_inputs(load.new_weight_bytes as f64, prior);
            learn(&mut self.load, &inputs, load.load_seconds * slower, 1e-3);
        }
        if let Some(seconds) = load.first_run_seconds.filter(|seconds| is_time(*seconds)) {
            self.segments.touch(load.segment).first.push(seconds * slower);
        }
    }

    fn learn_first(&mut self, segment: Digest, seconds: f64, compute: f64, prior: &Prior) {
        self.segments.touch(segment).first.push(seconds);
        learn(&mut self.first, &first_inputs(compute, prior), seconds, 1e-4);
    }

    fn refit(&mut self, prior: &Prior) {
        self.unfitted = 0;
        self.fit = Fit::to(&self.segments.samples(), prior);
    }
}

/// Whether something can have taken so long: clocks do not tell picoseconds, and nobody waits for
/// thirty years.
pub(crate) fn is_time(seconds: f64) -> bool {
    (LEAST_SECONDS..=MOST_SECONDS).contains(&seconds)
}

/// Learns relative errors; what is shorter than `floor` is known no better than that.
fn learn(ridge: &mut Ridge, inputs: &[f64], seconds: f64, floor: f64) {
    if !(0.0..=MOST_SECONDS).contains(&seconds) {
        return;
    }
    let scale = seconds.max(floor);
    let mut scaled = [0.0; 3];
    let scaled = &mut scaled[..inputs.len()];
    for (scaled, input) in scaled.iter_mut().zip(inputs) {
        *scaled = input / scale;
    }
    ridge.learn(scaled, seconds / scale, 1.0, KEEP);
}

fn source(ridge: &Ridge) -> TermSource {
    match ridge.weight() >= 2.0 {
        true => TermSource::Fitted,
        false => TermSource::Prior,
    }
}

fn transfer_inputs(features: &Features, prior: &Prior) -> [f64; 3] {
    [
        prior.rates.launch_seconds,
        features.input_bytes as f64 / prior.rates.upload_bytes_per_second,
        features.output_bytes as f64 / prior.rates.download_bytes_per_second,
    ]
}

fn load_inputs(new_bytes: f64, prior: &Prior) -> [f64; 2] {
    [prior.load_seconds, new_bytes * prior.load_seconds_per_byte]
}

fn first_inputs(compute: f64, prior: &Prior) -> [f64; 2] {
    [prior.first_run_seconds, compute * prior.first_run_factor]
}

/// A number that tells segments apart.
fn number(segment: &Digest) -> u64 {
    segment.0.iter().take(7).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::DeviceProfile;
    use crate::features::ClassWork;

    fn prior() -> Prior {
        Prior::of(&DeviceProfile::made_up("cpu"))
    }

    fn run(name: &str, sequence: usize, seconds: f64) -> RunTime {
        let mut features =
            Features { batch: 1, sequence, input_bytes: 1000, ..Features::default() };
        let tokens = sequence as f64;
        features.work[0] = ClassWork { flops: 1e7 * tokens, bytes: 1e4 * tokens, nodes: 30.0 };
        RunTime {
            device: "cpu".into(),
            segment: Digest::of(name.as_bytes()),
            features: Arc::new(features),
            compute_seconds: seconds,
            queue_seconds: 0.0,
            transfer_seconds: 1e-4,
            readback_seconds: 0.0,
            first: false,
            alone: true,
        }
    }

    fn taught(observed: &[RunTime]) -> (Runs, Pace) {
        let (mut runs, mut pace) = (Runs::new(&prior()), Pace::default());
        observed.iter().for_each(|run| runs.observe(run, &mut pace, &prior()));
        (runs, pace)
    }

    fn source_of(runs: &Runs, run: &RunTime) -> TermSource {
        runs.compute(&run.segment, &run.features).source
    }

    #[test]
    fn says_where_a_time_comes_from() {
        let (runs, _) = taught(&[run("a", 16, 0.01), run("b", 16, 0.02)]);
        assert_eq!(source_of(&runs, &run("a", 16, 0.0)), TermSource::Measured);
        assert_eq!(source_of(&runs, &run("a", 32, 0.0)), TermSource::Interpolated);
        assert_eq!(source_of(&runs, &run("c", 16, 0.0)), TermSource::Fitted);
        assert_eq!(source_of(&Runs::new(&prior()), &run("c", 16, 0.0)), TermSource::Prior);
    }

    #[test]
    fn its_own_history_dominates() {
        let mut observed: Vec<RunTime> =
            (1..9).map(|size| run("other", 16 * size, 0.001)).collect();
        observed.push(run("a", 16, 0.5));
        let (runs, _) = taught(&observed);
        let own = run("a", 16, 0.0);
        assert_eq!(runs.compute(&own.segment, &own.features).seconds, 0.5);
    }

    #[test]
    fn first_runs_and_those_in_company_do_not_teach_what_a_run_takes() {
        let first = RunTime { first: true, ..run("a", 16, 3.0) };
        let crowded = RunTime { alone: false, ..run("a", 16, 2.0) };
        let (runs, _) = taught(&[first.clone(), crowded, run("a", 16, 0.0)]);
        assert_eq!(source_of(&runs, &first), TermSource::Prior);
        let extra = runs.first_extra(&first.segment, 0.5, &prior());
        assert_eq!((extra.seconds, extra.source), (2.5, TermSource::Measured));
    }

    #[test]
    fn what_was_run_is_held_until_it_is_loaded_again() {
        let mut large = run("a", 16, 0.01);
        Arc::make_mut(&mut large.features).peak_activation_bytes = 77;
        let (mut runs, pace) = taught(&[large.clone()]);
        let held = |runs: &Runs| runs.segments.get(&large.segment).unwrap().held_bytes;
        assert_eq!(held(&runs), 77.0);
        let load = LoadTime {
            device: "cpu".into(),
            segment: large.segment,
            new_weight_bytes: 1000,
            load_seconds: 0.2,
            first_run_seconds: Some(0.05),
            memory_added_bytes: None,
        };
        runs.observe_load(&load, &pace, &prior());
        assert_eq!(held(&runs), 0.0);
        let again = runs.load(&large.segment, 1000.0, &prior());
        assert_eq!((again.seconds, again.source), (0.2, TermSource::Measured));
    }

    #[test]
    fn loads_of_other_segments_teach_what_a_new_one_takes() {
        let mut runs = Runs::new(&prior());
        let load = |number: u8, bytes: u64| LoadTime {
            device: "cpu".into(),
            segment: Digest::of(&[number]),
            new_weight_bytes: bytes,
            load_seconds: 0.1 + bytes as f64 * 1e-8,
            first_run_seconds: None,
            memory_added_bytes: None,
        };
        for number in 0..20 {
            let load = load(number, u64::from(number % 5 + 1) * 10_000_000);
            runs.observe_load(&load, &Pace::default(), &prior());
        }
        let new = runs.load(&Digest::of(b"new"), 7e7, &prior());
        assert!((new.seconds / 0.8 - 1.0).abs() < 0.1, "{new:?}");
        assert_eq!(new.source, TermSource::Fitted);
    }

    #[test]
    fn a_background_load_is_learned_once_for_all_segments() {
        let mut observed = Vec::new();
        for _ in 0..5 {
            observed.extend(["a", "b", "c", "d", "e"].map(|name| run(name, 16, 0.01)));
        }
        for _ in 0..5 {
            observed.extend(["a", "b", "c", "d"].map(|name| run(name, 16, 0.017)));
        }
        let (runs, pace) = taught(&observed);
        assert!((pace.log().exp() - 1.7).abs() < 0.05, "{pace:?}");
        for name in ["a", "b", "c", "d", "e"] {
            let run = run(name, 16, 0.0);
            let seconds = runs.compute(&run.segment, &run.features).seconds * pace.log().exp();
            assert!((seconds / 0.017 - 1.0).abs() < 0.05, "{name}: {seconds}");
        }
    }
}
