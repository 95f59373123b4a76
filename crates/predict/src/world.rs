//! A made-up machine whose costs are known, to see how well they are found out. Numbers only, and
//! the same in every run.

use std::sync::Arc;

use holdfast_graph::Digest;

use crate::device::{DeviceProfile, Rates};
use crate::features::{ClassWork, Features};
use crate::measured::{Measured, RunTime};
use crate::mix::{Job, Mix, Piece, Weight};
use crate::noise::Noise;
use crate::predictor::Predictor;
use crate::strategy::Strategy;

/// A model that exists only as numbers.
#[derive(Clone)]
pub(crate) struct Model {
    name: String,
    layers: f64,
    width: f64,
    kind: usize,
    /// What no feature shows.
    hidden: f64,
}

/// The machine.
pub(crate) struct World {
    pub(crate) device: Arc<DeviceProfile>,
    pub(crate) models: Vec<Model>,
    pub(crate) noise: Noise,
    /// How much slower everything is, for a background load.
    pub(crate) slower: f64,
    /// The deviation of what is measured.
    spread: f64,
    memory: f64,
    packing: f64,
    loaded: Vec<Digest>,
    arena: f64,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let device = DeviceProfile {
            key: "cpu test 1 thread".into(),
            backend: "cpu".into(),
            adapter: "made up".into(),
            software_adapter: false,
            slots: 2,
            threads: 1,
            cores: 2,
            rates: Some(Rates {
                matmul_flops: 5e10,
                memory_bytes_per_second: 7e9,
                launch_seconds: 2e-5,
                upload_bytes_per_second: 4e9,
                download_bytes_per_second: 4e9,
            }),
        };
        let mut noise = Noise::new(seed);
        let models = (0..14).map(|number| Model {
            name: format!("model {number}"),
            layers: (2 + noise.below(10)) as f64,
            width: 64.0 * (2 + noise.below(7)) as f64,
            kind: number % 3,
            hidden: (0.1 * noise.normal()).exp(),
        });
        World {
            device: Arc::new(device),
            models: models.collect(),
            noise: Noise::new(seed + 1),
            slower: 1.0,
            spread: 0.03,
            memory: 120e6,
            packing: 1.8,
            loaded: Vec::new(),
            arena: 0.0,
        }
    }

    pub(crate) fn piece(&self, model: usize, batch: usize, sequence: usize) -> Piece {
        let model = &self.models[model];
        let segment = Digest::of(model.name.as_bytes());
        let features = Arc::new(features(model, batch, sequence));
        let content = Digest::of(&segment.0);
        let weights = [Weight { content, bytes: features.weight_bytes, is_table: false }];
        let resident = self.loaded.contains(&segment);
        let label = model.name.as_str().into();
        Piece { label, segment, features, weights: weights.into(), resident }
    }

    /// What a piece really takes alone: small products are slow, and models differ in ways that
    /// no feature shows.
    pub(crate) fn alone(&self, piece: &Piece) -> f64 {
        let features = &piece.features;
        let same = |model: &&Model| Digest::of(model.name.as_bytes()) == piece.segment;
        let model = self.models.iter().find(same).expect("a model of this world");
        let small = model.hidden * (1.0 + 100.0 / model.width);
        let of = |class: usize| &features.work[class];
        let products = of(0).flops / 3.1e10 + of(1).flops / 2.2e10 + of(2).flops / 1.5e10;
        let plain = of(0).bytes / 2e10 + of(3).bytes / 3e9 + of(4).bytes / 6e9;
        (6e-5 + 4e-6 * features.nodes() + small * products + plain) * self.slower
    }

    fn off(&mut self) -> f64 {
        (self.spread * self.noise.normal()).exp()
    }

    /// Runs a piece alone and tells the predictor.
    pub(crate) fn run_alone(&mut self, predictor: &mut Predictor, piece: &Piece) {
        let run = RunTime {
            device: self.device.key.clone(),
            segment: piece.segment,
            features: piece.features.clone(),
            compute_seconds: self.alone(piece) * self.off(),
            queue_seconds: 0.0,
            transfer_seconds: 4e-5 * self.off(),
            readback_seconds: 0.0,
            first: false,
            alone: true,
        };
        predictor.observe_run(&run);
    }

    /// A mix of some models, `from` those given.
    pub(crate) fn mix(&mut self, from: &[usize], strategy: Strategy) -> Mix {
        let count = 2 + self.noise.below(5);
        let sizes = [(1, 16), (1, 64), (4, 32), (1, 128)];
        let jobs: Vec<Job> = (0..count)
            .map(|_| {
                let model = from[self.noise.below(from.len())];
                let (batch, sequence) = sizes[self.noise.below(sizes.len())];
                let piece = self.piece(model, batch, sequence);
                Job { model: self.models[model].name.clone(), pieces: vec![piece] }
            })
            .collect();
        self.arrange(jobs, strategy)
    }

    pub(crate) fn arrange(&self, jobs: Vec<Job>, strategy: Strategy) -> Mix {
        let answers = jobs.len();
        let stages = match strategy {
            Strategy::Parallel => vec![jobs],
            Strategy::Sequential => jobs.into_iter().map(|job| vec![job]).collect(),
            Strategy::Batched => jobs.chunks(2).map(<[Job]>::to_vec).collect(),
        };
        let device = self.device.clone();
        Mix { device, strategy, stages, answers, memory_now: Some(self.memory), warmed_up: false }
    }

    /// Runs a mix: two at once do the work of less than 1.75, long ones of less than that, and
    /// each job waits a little.
    pub(crate) fn run(&mut self, mix: &Mix) -> Measured {
        let mut seconds = 0.0;
        let mut values = 0.0_f64;
        for stage in &mix.stages {
            let (mut running, mut waiting) = (Vec::<(f64, f64)>::new(), stage.iter());
            let mut held: Vec<f64> = Vec::new();
            loop {
                while running.len() < mix.device.slots {
                    let Some(job) = waiting.next() else { break };
                    let work: f64 = job.pieces.iter().map(|piece| self.alone(piece)).sum();
                    let heavy = 1.0 + 0.1 * (work / 0.02).min(1.0);
                    let load = job.pieces.iter().filter(|piece| !piece.resident).count();
                    running.push((work + 1.5e-4 + 0.03 * load as f64, heavy));
                    held.push(job.pieces[0].features.peak_activation_bytes as f64);
                }
                let Some(least) = running.iter().map(|job| job.0).min_by(f64::total_cmp) else {
                    break;
                };
                let count = running.len() as f64;
                let heavy = running.iter().map(|job| job.1).sum::<f64>() / count;
                let capacity = if count > 1.0 { 1.75 / heavy } else { 1.0 };
                seconds += least * count / capacity;
                running.iter_mut().for_each(|job| job.0 -= least);
                running.retain(|job| job.0 > 1e-12);
            }
            held.sort_by(|one, two| two.total_cmp(one));
            values = values.max(held.iter().take(mix.device.slots).sum());
        }
        for piece in mix.stages.iter().flatten().flat_map(|job| &job.pieces) {
            if !self.loaded.contains(&piece.segment) {
                self.loaded.push(piece.segment);
                self.memory += self.packing * piece.features.weight_bytes as f64 + 1.6e6;
            }
        }
        self.memory += 0.7 * (values - self.arena).max(0.0);
        self.arena = self.arena.max(values);
        let seconds = seconds * self.off();
        Measured {
            latency_seconds: seconds,
            throughput_per_second: mix.answers as f64 / seconds,
            memory_bytes: Some(self.memory * (1.0 + 0.01 * self.noise.normal())),
        }
    }

    /// Everything loaded, so that mixes only compute.
    pub(crate) fn load_all(&mut self) {
        self.loaded = self.models.iter().map(|model| Digest::of(model.name.as_bytes())).collect();
    }
}

fn features(model: &Model, batch: usize, sequence: usize) -> Features {
    let tokens = (batch * sequence) as f64;
    let Model { layers, width, kind, .. } = *model;
    let product = layers * 24.0 * width * width * tokens;
    let plain = layers * 40.0 * width * tokens;
    let attend = layers * 4.0 * width * tokens * sequence as f64;
    let mut features = Features { batch, sequence, ..Features::default() };
    let mut set = |class: usize, flops: f64, bytes: f64, nodes: f64| {
        features.work[class] = ClassWork { flops, bytes, nodes };
    };
    match kind {
        0 => {
            set(0, product, plain * 2.0, layers * 6.0);
            set(2, attend, plain, layers);
        }
        1 => set(1, product, plain * 3.0, layers * 4.0),
        _ => set(0, product + attend, plain * 2.5, layers * 8.0),
    }
    set(3, plain, plain, layers * 2.0);
    set(4, plain, plain, layers * (4.0 + kind as f64));
    set(5, 0.0, plain * 0.3, layers * 2.0);
    features.weight_bytes = (layers * 48.0 * width * width) as u64;
    features.peak_activation_bytes = (tokens * width * 40.0) as u64;
    features.input_bytes = (tokens * 24.0) as u64;
    features.output_bytes = (tokens * width * 4.0) as u64;
    features
}
