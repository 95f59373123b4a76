//! What of a mix its cost depends on, in a few numbers: small enough to keep hundreds of them.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use holdfast_graph::Digest;
use serde::{Deserialize, Serialize};

use crate::estimate::TermSource;
use crate::features::OperatorClass;
use crate::interference::TRAITS;
use crate::knowledge::Knowledge;
use crate::memory::{MemoryOutline, Needs};
use crate::mix::{Job, Mix, Piece};
use crate::prior::Prior;
use crate::runs::MOST_SECONDS;
use crate::sharing::{CROWDS, share};
use crate::terms::{Terms, piece_terms};

/// A mix, as far as its cost is concerned. Seconds are at the pace of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outline {
    /// Seconds with each crowd, by plain sharing.
    pub(crate) times: [f64; CROWDS],
    pub(crate) jobs: usize,
    /// Answers, which stand for models.
    pub(crate) models: usize,
    /// What the jobs are like.
    pub(crate) traits: [f64; TRAITS],
    /// Where the least sure of the times comes from.
    pub(crate) source: TermSource,
    /// Runs behind the times.
    pub(crate) observations: u64,
    /// Whether something had to be loaded.
    pub(crate) loads: bool,
    pub(crate) memory: MemoryOutline,
}

impl Default for Outline {
    fn default() -> Outline {
        Outline {
            times: [0.0; CROWDS],
            jobs: 1,
            models: 1,
            traits: [1.0, 0.0, 0.0, 0.0, 0.0],
            source: TermSource::Measured,
            observations: 0,
            loads: false,
            memory: MemoryOutline::default(),
        }
    }
}

impl Outline {
    /// How much can be learned about interference from it: nothing else should be in doubt.
    pub(crate) fn certainty(&self) -> f64 {
        let certainty = match self.source {
            TermSource::Measured => 1.0,
            TermSource::Interpolated => 0.5,
            TermSource::Fitted => 0.1,
            TermSource::Prior => 0.05,
        };
        if self.loads { certainty * 0.3 } else { certainty }
    }
}

/// Adds up what a mix takes, and says of what if `terms` are asked for.
pub(crate) fn outline(mix: &Mix, known: &Knowledge, terms: &mut Option<Terms>) -> Outline {
    let mut sums = Sums {
        known,
        prior: known.prior(),
        loaded: Vec::new(),
        weights: HashSet::default(),
        outline: Outline { jobs: 0, models: mix.answers.max(1), ..Outline::default() },
        matmul_flops: 0.0,
        flops: 0.0,
        needs: Needs::default(),
        everything_new: mix.memory_now.is_none(),
        warmed_up: mix.warmed_up,
    };
    if !sums.everything_new {
        sums.skip_weights_that_are_there(mix);
    }
    let mut work = Vec::new();
    let mut values = Vec::new();
    let mut alone = 0.0;
    for stage in &mix.stages {
        work.clear();
        values.clear();
        for job in stage {
            let (seconds, bytes) = sums.job(job, terms);
            work.push(seconds);
            values.push(bytes);
        }
        alone += work.iter().sum::<f64>();
        share(&mix.device, &work, &mut sums.outline.times);
        values.sort_by(|one, two| two.total_cmp(one));
        let at_once: f64 = values.iter().take(mix.device.slots.max(1)).sum();
        sums.needs.values = sums.needs.values.max(at_once);
        sums.outline.jobs += stage.len();
    }
    sums.finish(mix, alone)
}

struct Sums<'a> {
    known: &'a Knowledge,
    prior: Prior,
    /// Segments that this mix has loaded so far.
    loaded: Vec<Digest>,
    /// Large weights that are counted already.
    weights: HashSet<Digest, BuildHasherDefault<FirstBytes>>,
    outline: Outline,
    matmul_flops: f64,
    flops: f64,
    needs: Needs,
    /// Nobody knows what is in memory, so all that runs is counted.
    everything_new: bool,
    /// What is loaded for this mix is loaded by the time that counts.
    warmed_up: bool,
}

impl Sums<'_> {
    /// Weights of loaded pieces need not be loaded again for others.
    fn skip_weights_that_are_there(&mut self, mix: &Mix) {
        let pieces = || mix.stages.iter().flatten().flat_map(|job| &job.pieces);
        if pieces().all(|piece| piece.resident) {
            return;
        }
        for piece in pieces().filter(|piece| piece.resident) {
            self.weights.extend(piece.weights.iter().map(|weight| weight.content));
        }
    }

    /// A job's seconds alone, and the bytes of its values.
    fn job(&mut self, job: &Job, terms: &mut Option<Terms>) -> (f64, f64) {
        let (mut seconds, mut values) = (0.0, 0.0_f64);
        for piece in &job.pieces {
            seconds += self.piece(piece, terms);
            values = values.max(piece.features.peak_activation_bytes as f64);
        }
        (finite(seconds).clamp(0.0, MOST_SECONDS), values)
    }

    fn piece(&mut self, piece: &Piece, terms: &mut Option<Terms>) -> f64 {
        let Piece { segment, features, .. } = piece;
        let runs = &self.known.runs;
        let compute = runs.compute(segment, features);
        let transfer = runs.transfer(segment, features, &self.prior);
        let mut seconds = compute.seconds + transfer.seconds;
        let outline = &mut self.outline;
        outline.source = outline.source.max(compute.source);
        outline.observations += compute.observations;
        self.matmul_flops += features.class(OperatorClass::Matmul).flops;
        self.flops += features.flops();
        if let Some(terms) = terms {
            piece_terms(terms, &piece.label, features, &compute, &transfer, runs);
        }
        let new_bytes = self.count(piece);
        if let Some(new_bytes) = new_bytes.filter(|_| !piece.resident && !self.warmed_up) {
            let load = runs.load(segment, new_bytes, &self.prior);
            let first = runs.first_extra(segment, compute.seconds, &self.prior);
            self.outline.loads = true;
            self.outline.source = self.outline.source.max(load.source).max(first.source);
            seconds += load.seconds + first.seconds;
            if let Some(terms) = terms {
                terms.seconds(&piece.label, "load", load.seconds, load.source);
                terms.seconds(&piece.label, "first run, extra", first.seconds, first.source);
            }
        }
        seconds
    }

    /// Counts what a piece adds to memory. Bytes of new weights, the first time that this mix
    /// meets a segment that has to be loaded or may have been.
    fn count(&mut self, piece: &Piece) -> Option<f64> {
        if self.loaded.contains(&piece.segment) {
            return None;
        }
        let new = !piece.resident || self.everything_new;
        self.loaded.push(piece.segment);
        let history = self.known.runs.segments.get(&piece.segment);
        let held = history.map_or(0.0, |history| history.held_bytes);
        let values = piece.features.peak_activation_bytes as f64;
        self.needs.larger += if new { values } else { (values - held).max(0.0) };
        let (mut new_bytes, mut new_tables) = (0.0, 0.0);
        let mut large = 0.0;
        for weight in piece.weights.iter() {
            let bytes = weight.bytes as f64;
            large += bytes;
            if new && self.weights.insert(weight.content) {
                *(if weight.is_table { &mut new_tables } else { &mut new_bytes }) += bytes;
            }
        }
        // Weights that are not listed are too small to be held in common.
        new_bytes += (piece.features.weight_bytes as f64 - large).max(0.0);
        if new {
            self.needs.new_weight_bytes += new_bytes;
            self.needs.new_table_bytes += new_tables;
            self.needs.sessions += 1;
        }
        new.then_some(new_bytes + new_tables)
    }

    fn finish(mut self, mix: &Mix, alone: f64) -> Outline {
        let jobs = self.outline.jobs.max(1) as f64;
        let all: f64 = self.outline.times.iter().sum();
        let crowded = all - self.outline.times[0];
        let mean = (alone / jobs).max(1e-9);
        self.outline.traits = [
            1.0,
            (jobs.ln() - 1.0).clamp(-1.0, 2.0),
            self.matmul_flops / self.flops.max(1.0) - 0.7,
            (0.3 * (mean / 0.01).ln()).clamp(-1.5, 1.5),
            crowded / all.max(f64::MIN_POSITIVE) - 0.5,
        ]
        .map(finite);
        self.outline.memory = self.known.memory.outline(mix.memory_now, &self.needs);
        self.outline
    }
}

/// A number that can be calculated with, whatever came in.
fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// Hashes what is a hash already.
#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().take(8) {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Strategy;
    use crate::world::World;

    fn outlined(mix: &Mix) -> Outline {
        outline(mix, &Knowledge::of(&mix.device), &mut None)
    }

    fn mix(world: &World, models: &[usize]) -> Mix {
        let job = |model: &usize| Job {
            model: model.to_string(),
            pieces: vec![world.piece(*model, 1, 16)],
        };
        world.arrange(models.iter().map(job).collect(), Strategy::Sequential)
    }

    #[test]
    fn a_model_is_loaded_once_however_often_it_runs() {
        let world = World::new(1);
        let once = outlined(&mix(&world, &[0]));
        let twice = outlined(&mix(&world, &[0, 0]));
        assert!(once.loads && twice.loads);
        assert_eq!(once.memory.growths[..2], twice.memory.growths[..2]);
        assert!(twice.times[0] < 2.0 * once.times[0]);
    }

    #[test]
    fn a_model_that_is_loaded_costs_no_load_and_no_weights() {
        let mut world = World::new(1);
        world.load_all();
        let outline = outlined(&mix(&world, &[0, 1]));
        assert!(!outline.loads);
        assert_eq!(outline.memory.growths[..2], [0.0, 0.0]);
    }

    #[test]
    fn what_is_loaded_before_the_time_counts_takes_memory_and_no_time() {
        let mut world = World::new(1);
        let cold = mix(&world, &[0, 1]);
        let warmed = outlined(&Mix { warmed_up: true, ..cold.clone() });
        assert_eq!(warmed.memory.growths, outlined(&cold).memory.growths);
        assert!(!warmed.loads);
        world.load_all();
        assert_eq!(warmed.times, outlined(&mix(&world, &[0, 1])).times);
    }

    #[test]
    fn weights_in_common_are_counted_once_and_not_if_they_are_there() {
        let world = World::new(1);
        let mut both = mix(&world, &[0, 1]);
        let apart = outlined(&both).memory.growths[0];
        let shared = both.stages[0][0].pieces[0].weights.clone();
        let bytes = shared[0].bytes;
        both.stages[1][0].pieces[0].weights = shared;
        let features = both.stages[0][0].pieces[0].features.clone();
        both.stages[1][0].pieces[0].features = features;
        let together = outlined(&both).memory.growths[0];
        assert_eq!(together, bytes as f64);
        assert!(apart > together);
        // The second one is there already, and with it the weights of the first.
        both.stages[1][0].pieces[0].resident = true;
        assert_eq!(outlined(&both).memory.growths[0], 0.0);
    }

    #[test]
    fn without_a_measurement_all_that_runs_counts_as_new() {
        let mut world = World::new(1);
        world.load_all();
        let mut mix = mix(&world, &[0, 1]);
        mix.memory_now = None;
        let outline = outlined(&mix);
        assert!(outline.memory.growths[0] > 0.0);
        assert!(!outline.loads, "what is loaded is not loaded again");
    }

    #[test]
    fn an_empty_mix_is_nothing() {
        let outline = outlined(&mix(&World::new(1), &[]));
        assert_eq!((outline.jobs, outline.times.iter().sum::<f64>()), (0, 0.0));
        assert!(outline.traits.iter().all(|one| one.is_finite()));
    }
}
