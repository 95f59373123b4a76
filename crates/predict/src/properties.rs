//! What holds whatever comes in.

use std::sync::Arc;

use holdfast_graph::Digest;
use proptest::prelude::*;

use crate::conformal::WINDOW;
use crate::device::{DeviceProfile, Rates};
use crate::estimate::{Estimate, Quantity};
use crate::features::{ClassWork, Features};
use crate::measured::{LoadTime, Measured, RunTime};
use crate::mix::{Job, Mix, Piece, Weight};
use crate::predictor::{DEVICES, OBSERVATIONS, Predictor};
use crate::segments::SEGMENTS;
use crate::strategy::Strategy as Way;
use crate::terms::TERMS;

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 1e-12..1e-3, 1e-3..1e6, 1e6..1e18, Just(f64::MAX), Just(-1.0)]
}

fn features() -> impl Strategy<Value = Features> {
    let work = (number(), number(), number()).prop_map(|(flops, bytes, nodes)| ClassWork {
        flops,
        bytes,
        nodes,
    });
    (proptest::array::uniform7(work), 0..100_usize, 0..5000_usize, any::<[u64; 4]>()).prop_map(
        |(work, batch, sequence, bytes)| Features {
            work,
            batch,
            sequence,
            input_bytes: bytes[0],
            output_bytes: bytes[1],
            weight_bytes: bytes[2] >> 20,
            peak_activation_bytes: bytes[3] >> 20,
        },
    )
}

fn piece() -> impl Strategy<Value = Piece> {
    (0..6_u8, features(), any::<bool>()).prop_map(|(segment, features, resident)| Piece {
        label: "piece".into(),
        segment: Digest::of(&[segment]),
        weights: Arc::new([Weight {
            content: Digest::of(&[segment, 1]),
            bytes: features.weight_bytes,
            is_table: segment % 2 == 0,
        }]),
        features: Arc::new(features),
        resident,
    })
}

fn device() -> impl Strategy<Value = DeviceProfile> {
    let backend = prop_oneof![Just("cpu"), Just("wasm"), Just("webgpu"), Just("webnn")];
    let rates = proptest::option::of((number(), number(), number()));
    (backend, rates, 0..9_usize, 0..9_usize, 0..9_usize).prop_map(
        |(backend, rates, slots, threads, cores)| DeviceProfile {
            slots,
            threads,
            cores,
            rates: rates.map(|(flops, bytes, seconds)| Rates {
                matmul_flops: flops,
                memory_bytes_per_second: bytes,
                launch_seconds: seconds,
                upload_bytes_per_second: bytes,
                download_bytes_per_second: bytes,
            }),
            ..DeviceProfile::made_up(backend)
        },
    )
}

fn mix() -> impl Strategy<Value = Mix> {
    let job = proptest::collection::vec(piece(), 1..3)
        .prop_map(|pieces| Job { model: "model".into(), pieces });
    let stages = proptest::collection::vec(proptest::collection::vec(job, 0..5), 0..4);
    let way = prop_oneof![Just(Way::Parallel), Just(Way::Sequential), Just(Way::Batched)];
    (device(), way, stages, 0..9_usize, proptest::option::of(number())).prop_map(
        |(device, strategy, stages, answers, memory_now)| Mix {
            device: Arc::new(device),
            strategy,
            stages,
            answers,
            memory_now,
            warmed_up: false,
        },
    )
}

fn teach(predictor: &mut Predictor, mix: &Mix, seconds: f64, bytes: f64) {
    for piece in mix.stages.iter().flatten().flat_map(|job| &job.pieces) {
        predictor.observe_run(&RunTime {
            device: mix.device.key.clone(),
            segment: piece.segment,
            features: piece.features.clone(),
            compute_seconds: seconds,
            queue_seconds: 0.0,
            transfer_seconds: seconds / 7.0,
            readback_seconds: 0.0,
            first: bytes < 1.0,
            alone: true,
        });
        predictor.observe_load(&LoadTime {
            device: mix.device.key.clone(),
            segment: piece.segment,
            new_weight_bytes: piece.features.weight_bytes,
            load_seconds: seconds,
            first_run_seconds: Some(seconds),
            memory_added_bytes: Some(bytes),
        });
    }
    let measured = Measured {
        latency_seconds: seconds,
        throughput_per_second: 1.0,
        memory_bytes: Some(bytes),
    };
    let estimate = predictor.estimate(mix);
    predictor.observe_mix(mix, &estimate, &measured);
}

fn assert_sound(estimate: &Estimate) {
    let sound = |quantity: &Quantity, least: f64| {
        assert!(quantity.value.is_finite() && quantity.value >= least, "{quantity:?}");
        assert!(quantity.low.is_finite() && quantity.high.is_finite(), "{quantity:?}");
        assert!(quantity.low >= 0.0 && quantity.covers(quantity.value), "{quantity:?}");
    };
    sound(&estimate.latency_seconds, f64::MIN_POSITIVE);
    sound(&estimate.throughput_per_second, 0.0);
    sound(&estimate.memory_bytes, f64::MIN_POSITIVE);
    assert!(estimate.terms.len() <= TERMS);
    assert!(estimate.terms.iter().all(|term| term.value.is_finite()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn an_estimate_is_a_positive_number_within_its_interval(
        taught in proptest::collection::vec((mix(), number(), number()), 0..8),
        mix in mix(),
    ) {
        let mut predictor = Predictor::new();
        for (mix, seconds, bytes) in &taught {
            teach(&mut predictor, mix, *seconds, *bytes);
        }
        assert_sound(&predictor.estimate(&mix));
    }

    #[test]
    fn one_more_job_never_makes_a_sequence_faster(mix in mix(), more in piece()) {
        let mut fewer = mix;
        fewer.strategy = Way::Sequential;
        fewer.stages =
            fewer.stages.into_iter().flatten().map(|job| vec![job]).collect();
        let mut longer = fewer.clone();
        longer.stages.push(vec![Job { model: "more".into(), pieces: vec![more] }]);
        let predictor = Predictor::new();
        let seconds = |mix: &Mix| predictor.estimate(mix).latency_seconds.value;
        prop_assert!(seconds(&longer) >= seconds(&fewer) * (1.0 - 1e-12));
    }

    #[test]
    fn what_is_kept_as_json_estimates_the_same_bits(
        taught in proptest::collection::vec((mix(), number(), number()), 0..6),
        mix in mix(),
    ) {
        let mut predictor = Predictor::new();
        for (mix, seconds, bytes) in &taught {
            teach(&mut predictor, mix, *seconds, *bytes);
        }
        let again = Predictor::from_json(&predictor.to_json()).expect("just written");
        prop_assert_eq!(&again, &predictor);
        prop_assert_eq!(again.estimate(&mix), predictor.estimate(&mix));
    }
}

#[test]
fn nothing_grows_beyond_its_bound() {
    let mut predictor = Predictor::new();
    let mut largest = 0;
    for number in 0..1200_u32 {
        let features = Features {
            batch: 1 + number as usize % 40,
            sequence: 1 + number as usize % 7,
            weight_bytes: 1000,
            ..Features::default()
        };
        let key = if number % 10 == 0 { format!("device {number}") } else { "one".into() };
        let device = DeviceProfile { key, ..DeviceProfile::made_up("cpu") };
        let piece = Piece {
            label: "piece".into(),
            segment: Digest::of(&(number / 3).to_le_bytes()),
            features: Arc::new(features),
            weights: Arc::new([]),
            resident: true,
        };
        let mix = Mix {
            device: Arc::new(device),
            strategy: Way::ALL[number as usize % 3],
            stages: vec![vec![Job { model: "model".into(), pieces: vec![piece] }]],
            answers: 1,
            memory_now: Some(1e8),
            warmed_up: false,
        };
        teach(&mut predictor, &mix, 0.01, 1e8);
        if number == 900 {
            largest = predictor.to_json().len();
        }
    }
    assert!(predictor.devices.len() <= DEVICES);
    assert_eq!(predictor.kept_mixes(), OBSERVATIONS);
    let one = &predictor.devices["one"];
    assert_eq!(one.runs.segments.len(), SEGMENTS);
    assert!(one.latency_misses.longest() <= WINDOW);
    // Numbers differ in how many digits they have.
    assert!(predictor.to_json().len() < largest + largest / 10);
}
