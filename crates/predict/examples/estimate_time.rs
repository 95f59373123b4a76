//! How long an estimate takes: six jobs, each a trunk and a head, on a predictor that has seen as
//! much as it can keep. `cargo run --release -p holdfast-predict --example estimate_time`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use holdfast_graph::Digest;
use holdfast_predict::{
    ClassWork, DeviceProfile, Features, Job, Measured, Mix, Piece, Predictor, RunTime, Strategy,
    Weight,
};

const WEIGHTS: usize = 100;
const ROUNDS: u32 = 2000;

fn main() {
    let device = Arc::new(DeviceProfile {
        key: "cpu".into(),
        backend: "cpu".into(),
        adapter: "any".into(),
        software_adapter: false,
        slots: 4,
        threads: 1,
        cores: 4,
        rates: None,
    });
    let mut predictor = Predictor::new();
    predictor.meet(&device);
    let pieces = |segment| (1..13).map(move |size| piece(segment, 8 * size, true));
    let runs: Vec<RunTime> = (0..192).flat_map(pieces).map(|piece| run(&device, &piece)).collect();
    time_rounds("observe_run, 2304 sizes × 15", 15, || {
        runs.iter().for_each(|run| predictor.observe_run(run));
    });
    let mixes: Vec<Mix> =
        (0..400).map(|number| mix(&device, number * 12, 8 * (1 + number % 12), true)).collect();
    let estimates: Vec<_> = mixes.iter().map(|mix| predictor.estimate(mix)).collect();
    let started = Instant::now();
    for (number, (mix, estimate)) in mixes.iter().zip(&estimates).enumerate() {
        let measured = Measured {
            latency_seconds: 0.02 + 0.0001 * (number % 17) as f64,
            throughput_per_second: 300.0,
            memory_bytes: Some(3e8),
        };
        predictor.observe_mix(mix, estimate, &measured);
    }
    report("observe_mix", started, 400);

    let known = mix(&device, 0, 64, true);
    time("estimate, measured", || predictor.estimate(&known));
    let between = mix(&device, 0, 44, true);
    time("estimate, between sizes", || predictor.estimate(&between));
    let new = mix(&device, 5000, 64, true);
    time("estimate, never run", || predictor.estimate(&new));
    let cold = mix(&device, 5000, 64, false);
    time("estimate, never run and not loaded", || predictor.estimate(&cold));
    let json = predictor.to_json();
    println!("{:<36} {:>9.1} kB", "kept as JSON", json.len() as f64 / 1e3);
    time_rounds("to_json", 5, || predictor.to_json());
    time_rounds("from_json", 5, || Predictor::from_json(&json));
}

fn time<T>(what: &str, of: impl FnMut() -> T) {
    time_rounds(what, ROUNDS, of);
}

fn time_rounds<T>(what: &str, rounds: u32, mut of: impl FnMut() -> T) {
    let started = Instant::now();
    for _ in 0..rounds {
        black_box(of());
    }
    report(what, started, rounds);
}

fn report(what: &str, started: Instant, rounds: u32) {
    let each = started.elapsed().as_secs_f64() / f64::from(rounds);
    println!("{what:<36} {:>9.1} µs", each * 1e6);
}

/// Six jobs: a trunk and a head each.
fn mix(device: &Arc<DeviceProfile>, first: usize, sequence: usize, resident: bool) -> Mix {
    let job = |number: usize| Job {
        model: format!("model {number}"),
        pieces: vec![
            piece(first + 2 * number, sequence, resident),
            piece(first + 2 * number + 1, sequence, resident),
        ],
    };
    Mix {
        device: device.clone(),
        strategy: Strategy::Parallel,
        stages: vec![(0..6).map(job).collect()],
        answers: 6,
        memory_now: Some(3e8),
        warmed_up: false,
    }
}

fn piece(segment: usize, sequence: usize, resident: bool) -> Piece {
    let segment = if segment < 5000 { segment % 192 } else { segment };
    let tokens = sequence as f64;
    let scale = (1 + segment % 7) as f64;
    let class = |flops, bytes, nodes| ClassWork { flops, bytes, nodes };
    let mut features = Features { batch: 1, sequence, ..Features::default() };
    features.work[0] = class(1e6 * scale * tokens, 1e6 + 4e4 * tokens, 36.0);
    features.work[2] = class(1e3 * tokens * tokens, 1e4 * tokens, 6.0);
    features.work[3] = class(3e4 * tokens, 2e4 * tokens, 13.0);
    features.work[4] = class(5e4 * tokens, 3e4 * tokens, 20.0 + scale);
    features.work[5] = class(0.0, 1e4 * tokens, 9.0);
    features.weight_bytes = 40_000_000;
    features.peak_activation_bytes = 100_000 * sequence as u64;
    let weight = |number: usize| Weight {
        content: Digest::of(&(segment * WEIGHTS + number).to_le_bytes()),
        bytes: 300_000,
        is_table: false,
    };
    Piece {
        label: "piece".into(),
        segment: Digest::of(&segment.to_be_bytes()),
        features: Arc::new(features),
        weights: (0..WEIGHTS).map(weight).collect(),
        resident,
    }
}

fn run(device: &DeviceProfile, piece: &Piece) -> RunTime {
    RunTime {
        device: device.key.clone(),
        segment: piece.segment,
        features: piece.features.clone(),
        compute_seconds: piece.features.flops() / 3e10 + 2e-4,
        queue_seconds: 0.0,
        transfer_seconds: 3e-5,
        readback_seconds: 0.0,
        first: false,
        alone: true,
    }
}
