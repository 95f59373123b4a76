//! Programs: kept tensors, passing between steps, and what the engine says of wrong requests.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::error::Error;
use std::time::Duration;

use common::models::{dense, dense_inputs, lookup, matrix, rounds, rounds_inputs};
use common::{Scratch, block_on, inputs::integers, options, outputs};
use holdfast_devices::cpu::CpuOptions;
use holdfast_devices::{
    Device, DeviceError, ErrorKind, Input, LiftedInput, Loaded, Output, Program, RequestId,
    Segment, SegmentId, Step, TensorId,
};
use holdfast_graph::{DataType, Digest, Tensor};

#[test]
fn a_kept_tensor_comes_back_as_it_was_until_it_is_dropped() {
    let Scratch { engine, .. } = &Scratch::new();
    block_on(async {
        let tensors = [
            matrix(3, 1),
            integers(&[2], |index| index as i64),
            Tensor::from_slice::<f32>(&[0, 4], &[]).unwrap(),
            Tensor::from_slice(&[], &[1.5f64]).unwrap(),
            Tensor::from_slice(&[3], &[1u8, 2, 3]).unwrap(),
        ];
        for (index, tensor) in tensors.iter().enumerate() {
            engine.put(id(&index.to_string()), tensor.clone()).await.unwrap();
        }
        let bytes: usize = tensors.iter().map(|tensor| tensor.bytes().len()).sum();
        let stats = engine.stats().await.unwrap();
        assert_eq!((stats.tensors, stats.tensor_bytes), (tensors.len(), bytes as u64));
        for (index, tensor) in tensors.iter().enumerate() {
            assert_eq!(engine.get(&id(&index.to_string())).await.unwrap(), *tensor);
        }
        engine.drop_tensor(&id("0")).await.unwrap();
        let gone = engine.get(&id("0")).await.unwrap_err();
        check(&gone, ErrorKind::Caller, &["no tensor `0`"]);
        let twice = engine.drop_tensor(&id("0")).await.unwrap_err();
        check(&twice, ErrorKind::Caller, &["no tensor `0`"]);
        assert_eq!(engine.stats().await.unwrap().tensors, tensors.len() - 1);
    });
}

#[test]
fn bytes_that_are_not_aligned_arrive_as_they_are() {
    let scratch = Scratch::new();
    block_on(async {
        let loaded = scratch.load_model("dense", &dense(1)).await;
        let aligned = matrix(2, 1);
        let mut shifted = vec![0u8];
        shifted.extend_from_slice(aligned.bytes());
        let bytes = bytes::Bytes::from(shifted).slice(1..);
        let shifted = Tensor::new(aligned.dtype(), aligned.dims().to_vec(), bytes).unwrap();
        scratch.engine.put(id("shifted"), shifted.clone()).await.unwrap();
        assert_eq!(scratch.engine.get(&id("shifted")).await.unwrap(), aligned);
        let of = |x: Tensor| [("x".to_owned(), x)].into();
        let expected = scratch.run(&loaded, &of(aligned)).await;
        assert_eq!(scratch.run(&loaded, &of(shifted)).await, expected);
    });
}

#[test]
fn a_put_tensor_is_replaced_by_one_of_the_same_name() {
    let Scratch { engine, .. } = &Scratch::new();
    block_on(async {
        engine.put(id("a"), matrix(1, 1)).await.unwrap();
        engine.put(id("a"), matrix(2, 2)).await.unwrap();
        assert_eq!(engine.get(&id("a")).await.unwrap(), matrix(2, 2));
        assert_eq!(engine.stats().await.unwrap().tensors, 1);
    });
}

#[test]
fn outputs_are_returned_kept_both_or_passed_on() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let dense = scratch.load_model("dense", &dense(1)).await;
        let mut expected = vec![matrix(2, 3)];
        for _ in 0..3 {
            let inputs = [("x".to_owned(), expected[expected.len() - 1].clone())].into();
            expected.push(scratch.run(&dense, &inputs).await["y"].clone());
        }
        let chain = |first: Input, ways: [Output; 3]| {
            let from = [first, step_output(0), step_output(1)];
            let steps = from.into_iter().zip(ways);
            let steps = steps.map(|(input, output)| step(&dense, "x", input, &[("y", output)]));
            program(&scratch, steps.collect())
        };

        let ways = [Output::Pass, Output::Keep(id("b")), Output::ReturnAndKeep(id("c"))];
        let outcome = engine.run(chain(Input::Inline(matrix(2, 3)), ways)).await.unwrap();
        assert_eq!(outcome.outputs.len(), 1);
        assert_eq!((outcome.outputs[0].step, &outcome.outputs[0].tensor), (2, &expected[3]));
        assert_eq!(outcome.steps.len(), 3);
        assert_eq!(engine.get(&id("b")).await.unwrap(), expected[2]);
        assert_eq!(engine.get(&id("c")).await.unwrap(), expected[3]);

        // A kept output feeds the next program, and may be replaced by what comes of it.
        let ways = [Output::Return, Output::Return, Output::Keep(id("b"))];
        let outcome = engine.run(chain(Input::Kept(id("b")), ways)).await.unwrap();
        assert_eq!(outcome.outputs.len(), 2);
        assert_eq!(outcome.outputs[0].tensor, expected[3]);
        assert_eq!(engine.stats().await.unwrap().tensors, 2);
        let inputs = [("x".to_owned(), outcome.output("y").unwrap().clone())].into();
        let further = scratch.run(&dense, &inputs).await["y"].clone();
        assert_eq!(engine.get(&id("b")).await.unwrap(), further);
    });
}

#[test]
fn one_output_may_go_to_several_places() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let dense = scratch.load_model("dense", &dense(1)).await;
        let expected = scratch.run(&dense, &dense_inputs(1, 1)).await["y"].clone();
        let outputs =
            [("y", Output::Keep(id("a"))), ("y", Output::Keep(id("b"))), ("y", Output::Return)];
        let steps = vec![step(&dense, "x", Input::Inline(matrix(1, 1)), &outputs)];
        let outcome = engine.run(program(&scratch, steps)).await.unwrap();
        assert_eq!(outcome.output("y"), Some(&expected));
        for name in ["a", "b"] {
            assert_eq!(engine.get(&id(name)).await.unwrap(), expected);
        }
    });
}

#[test]
fn what_a_program_keeps_is_told_with_its_size_and_nothing_else_is() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let dense = scratch.load_model("dense", &dense(1)).await;
        let run = |first: Output, second: Output| {
            let (few, many) = (Input::Inline(matrix(2, 1)), Input::Inline(matrix(3, 1)));
            let steps = vec![
                step(&dense, "x", few, &[("y", first)]),
                step(&dense, "x", many, &[("y", second)]),
            ];
            engine.run(program(&scratch, steps))
        };
        let outcome = run(Output::Keep(id("a")), Output::ReturnAndKeep(id("b"))).await.unwrap();
        let names: Vec<_> = outcome.kept.iter().map(|kept| kept.id.clone()).collect();
        assert_eq!(names, [id("a"), id("b")]);
        for kept in &outcome.kept {
            let tensor = engine.get(&kept.id).await.unwrap();
            assert_eq!((kept.dtype, &kept.dims[..]), (tensor.dtype(), tensor.dims()));
            assert_eq!(kept.byte_len(), tensor.bytes().len() as u64);
        }
        assert_ne!(outcome.kept[0].byte_len(), outcome.kept[1].byte_len());

        // Of several under one name, the last is kept and told.
        let outcome = run(Output::Keep(id("a")), Output::Keep(id("a"))).await.unwrap();
        assert_eq!(outcome.kept.len(), 1);
        assert_eq!(outcome.kept[0].dims, engine.get(&id("a")).await.unwrap().dims());
        assert_eq!(outcome.kept[0].dims[0], 3);

        assert_eq!(run(Output::Pass, Output::Return).await.unwrap().kept, []);
    });
}

#[test]
fn a_program_that_fails_half_way_keeps_nothing() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let dense = scratch.load_model("dense", &dense(1)).await;
        let lookup = scratch.load_model("lookup", &lookup()).await;
        let with_row = |row: i64| {
            let keep = [("y", Output::Keep(id("old"))), ("y", Output::Keep(id("new")))];
            let first = step(&dense, "x", Input::Inline(matrix(1, 7)), &keep);
            let row = Input::Inline(integers(&[1], |_| row));
            let second = step(&lookup, "id", row, &[("row", Output::Return)]);
            program(&scratch, vec![first, second])
        };
        engine.put(id("old"), matrix(1, 1)).await.unwrap();
        let failed = engine.run(with_row(10)).await.unwrap_err();
        check(&failed, ErrorKind::Caller, &["step 1", "out of data bounds"]);
        assert_eq!(engine.get(&id("old")).await.unwrap(), matrix(1, 1));
        assert!(engine.get(&id("new")).await.is_err());
        let stats = engine.stats().await.unwrap();
        assert_eq!((stats.tensors, stats.succeeded, stats.failed), (1, 0, 1));

        // The same program with a row that exists keeps both.
        engine.run(with_row(9)).await.unwrap();
        let kept = engine.get(&id("old")).await.unwrap();
        assert_ne!(kept, matrix(1, 1));
        assert_eq!(engine.get(&id("new")).await.unwrap(), kept);
    });
}

#[test]
fn kept_tensors_stay_within_their_limit() {
    let scratch = Scratch::with(CpuOptions { tensor_bytes: 100, ..options() });
    let engine = &scratch.engine;
    block_on(async {
        let dense = scratch.load_model("dense", &dense(1)).await;
        engine.put(id("a"), matrix(4, 1)).await.unwrap();
        let full = engine.put(id("b"), matrix(3, 1)).await.unwrap_err();
        check(&full, ErrorKind::Memory, &["48 more bytes", "limit of 100", "drop 12 bytes"]);
        engine.put(id("a"), matrix(6, 1)).await.unwrap();

        // What a program keeps counts too, all of it or none.
        let keep = |rows: usize, names: &[&str]| {
            let outputs: Vec<_> = names.iter().map(|name| ("y", Output::Keep(id(name)))).collect();
            let steps = vec![step(&dense, "x", Input::Inline(matrix(rows, 1)), &outputs)];
            program(&scratch, steps)
        };
        let full = engine.run(keep(3, &["a", "b", "c"])).await.unwrap_err();
        check(&full, ErrorKind::Memory, &["limit of 100"]);
        assert_eq!(engine.get(&id("a")).await.unwrap(), matrix(6, 1));
        assert_eq!(engine.stats().await.unwrap().tensors, 1);
        engine.run(keep(3, &["a", "b"])).await.unwrap();
        assert_eq!(engine.stats().await.unwrap().tensor_bytes, 96);

        // Kept twice under one name, only the last one stays, and only that one counts.
        engine.drop_tensor(&id("b")).await.unwrap();
        engine.run(keep(6, &["a", "a"])).await.unwrap();
        assert_eq!(engine.stats().await.unwrap().tensor_bytes, 96);
    });
}

#[test]
fn a_wrong_request_is_told_what_is_wrong_with_it() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let dense = &scratch.load_model("dense", &dense(1)).await;
        let fine = || Input::Inline(matrix(1, 1));
        let returned = || [("y", Output::Return)];
        engine.put(id("integers"), integers(&[1, 4], |_| 0)).await.unwrap();
        let packed = Tensor::new(DataType::U2, vec![1, 4], vec![27].into()).unwrap();
        engine.put(id("packed"), packed.clone()).await.unwrap();
        assert_eq!(engine.get(&id("packed")).await.unwrap(), packed, "it can be kept all the same");
        let nowhere = SegmentId(Digest::of(b"nowhere"));
        let unknown = |segment| Step { segment, ..step(dense, "x", fine(), &returned()) };
        let wrong = |input| step(dense, "x", input, &returned());
        let integers = integers(&[1, 4], |_| 0);
        let cases: Vec<(&str, Vec<Step>, Vec<&str>)> = vec![
            ("type", vec![wrong(Input::Inline(integers))], vec!["`x`", "step 0", "f32", "i64"]),
            ("kept type", vec![wrong(Input::Kept(id("integers")))], vec!["`x`", "step 0", "i64"]),
            ("no type", vec![wrong(Input::Kept(id("packed")))], vec!["`x`", "step 0", "u2[1, 4]"]),
            (
                "size",
                vec![wrong(Input::Inline(Tensor::from_slice(&[1, 3], &[0f32; 3]).unwrap()))],
                vec!["`x`", "step 0", "[batch, 4]", "[1, 3]"],
            ),
            (
                "rank",
                vec![wrong(Input::Inline(Tensor::from_slice(&[4], &[0f32; 4]).unwrap()))],
                vec!["`x`", "step 0", "[4]"],
            ),
            (
                "missing input",
                vec![Step { inputs: vec![], ..wrong(fine()) }],
                vec!["step 0", "lacks", "`x`"],
            ),
            (
                "unknown input",
                vec![step(dense, "z", fine(), &returned())],
                vec!["step 0", "no input `z`", "it has x"],
            ),
            (
                "input twice",
                vec![Step {
                    inputs: vec![("x".to_owned(), fine()), ("x".to_owned(), fine())],
                    ..wrong(fine())
                }],
                vec!["step 0", "`x`", "twice"],
            ),
            (
                "unknown output",
                vec![step(dense, "x", fine(), &[("z", Output::Return)])],
                vec!["step 0", "no output `z`", "it has y"],
            ),
            ("not kept", vec![wrong(Input::Kept(id("nothing")))], vec!["`nothing`"]),
            ("unknown step", vec![wrong(step_output(7))], vec!["`x` of step 0", "step 7"]),
            (
                "later step",
                vec![wrong(step_output(1)), wrong(fine())],
                vec!["`x` of step 0", "`y` of step 1"],
            ),
            (
                "output that is not named",
                vec![Step { outputs: vec![], ..wrong(fine()) }, wrong(step_output(0))],
                vec!["`x` of step 1", "`y` of step 0"],
            ),
            ("not loaded", vec![unknown(nowhere)], vec!["not loaded"]),
        ];
        for (what, steps, parts) in cases {
            let error = engine.run(program(&scratch, steps)).await.expect_err(what);
            check(&error, ErrorKind::Caller, &parts);
        }
        // None of it harmed the engine.
        scratch.run(dense, &dense_inputs(1, 1)).await;
        let stats = engine.stats().await.unwrap();
        assert_eq!((stats.in_flight, stats.succeeded), (0, 1));
    });
}

#[test]
fn a_step_that_is_passed_something_that_does_not_fit_names_it() {
    let scratch = Scratch::new();
    block_on(async {
        let dense = scratch.load_model("dense", &dense(1)).await;
        let lookup = scratch.load_model("lookup", &lookup()).await;
        let row = Input::Inline(integers(&[1], |_| 3));
        let first = step(&lookup, "id", row, &[("row", Output::Pass)]);
        let from = |output: &str| Input::Step { step: 0, output: output.to_owned() };
        let fits = step(&dense, "x", from("row"), &[("y", Output::Return)]);
        scratch.engine.run(program(&scratch, vec![first.clone(), fits])).await.unwrap();
        let second = step(&lookup, "id", from("row"), &[("row", Output::Return)]);
        let steps = program(&scratch, vec![first, second]);
        let error = scratch.engine.run(steps).await.unwrap_err();
        check(&error, ErrorKind::Caller, &["`id` of step 1", "f32[1, 4]"]);
    });
}

#[test]
fn a_bound_dimension_holds_for_every_run() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let graph = scratch.import("dense", &dense(1));
        let mut segment = Segment::new(scratch.lower(&graph).await);
        let free = engine.load(segment.clone()).await.unwrap();
        segment.dims.insert("batch".to_owned(), 2);
        let bound = engine.load(segment).await.unwrap();
        assert_ne!(bound.id, free.id);
        let inputs = dense_inputs(2, 1);
        assert_eq!(scratch.run(&bound, &inputs).await, scratch.run(&free, &inputs).await);
        let error = scratch.try_run(&bound, &dense_inputs(3, 1)).await.unwrap_err();
        check(&error, ErrorKind::Caller, &["`x` of step 0", "[2, 4]", "[3, 4]"]);
        scratch.run(&free, &dense_inputs(3, 1)).await;
    });
}

#[test]
fn a_request_id_is_free_again_when_the_request_is_done() {
    let scratch = Scratch::with(CpuOptions { concurrency: 1, ..options() });
    let engine = &scratch.engine;
    block_on(async {
        let rounds = scratch.load_model("rounds", &rounds(1)).await;
        let named = || {
            let inputs = rounds_inputs(20_000, 1);
            Program::single("the same", rounds.id, inputs, ["y".to_owned()])
        };
        let (first, second) = tokio::join!(engine.run(named()), engine.run(named()));
        first.unwrap();
        check(&second.unwrap_err(), ErrorKind::Caller, &["`the same` is running already"]);
        engine.run(named()).await.unwrap();
    });
}

#[test]
fn a_segment_that_is_loaded_twice_is_loaded_once() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let graph = scratch.import("rounds", &rounds(1));
        let segment = Segment::new(scratch.lower(&graph).await);
        let (one, two) = tokio::join!(engine.load(segment.clone()), engine.load(segment.clone()));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one.id, two.id);
        let took = [one.took, two.took];
        assert_eq!(took.iter().filter(|took| **took == Duration::ZERO).count(), 1, "{took:?}");
        assert_eq!(one.new_weight_bytes + two.new_weight_bytes, one.weight_bytes);
        assert!(one.weight_bytes > 0);
        assert_eq!(engine.stats().await.unwrap().segments, 1);

        engine.unload(one.id).await.unwrap();
        let error = engine.unload(one.id).await.unwrap_err();
        check(&error, ErrorKind::Caller, &["not loaded"]);
        let stats = engine.stats().await.unwrap();
        assert_eq!((stats.segments, stats.weight_bytes), (0, 0));
    });
}

#[test]
fn lifted_weights_are_not_for_an_engine_whose_sessions_share_by_themselves() {
    let scratch = Scratch::new();
    block_on(async {
        let graph = scratch.lower(&scratch.import("dense", &dense(1))).await;
        let content = Digest::of(b"any");
        let (input, dtype, dims) = ("w".to_owned(), DataType::F32, vec![1]);
        let lifted = vec![LiftedInput { input, content, dtype, dims }];
        let segment = Segment { lifted, ..Segment::new(graph.clone()) };
        let error = scratch.engine.load(segment).await.unwrap_err();
        check(&error, ErrorKind::Device, &["input `w` is a lifted weight", "weights inside"]);
        scratch.engine.load(Segment::new(graph)).await.unwrap();
    });
}

#[test]
fn a_program_finishes_though_its_segment_is_unloaded() {
    let scratch = Scratch::with(CpuOptions { concurrency: 1, ..options() });
    let engine = &scratch.engine;
    block_on(async {
        let loaded = scratch.load_model("rounds", &rounds(1)).await;
        let inputs = rounds_inputs(300_000, 1);
        let expected = scratch.run(&loaded, &inputs).await;
        let running = tokio::spawn({
            let (engine, program) = (engine.clone(), scratch.program(&loaded, &inputs));
            async move { engine.run(program).await }
        });
        scratch.until_running().await;
        engine.unload(loaded.id).await.unwrap();
        assert_eq!(engine.stats().await.unwrap().in_flight, 1, "the test's program is too short");
        assert_eq!(outputs(running.await.unwrap().unwrap()), expected);
        let error = scratch.try_run(&loaded, &inputs).await.unwrap_err();
        check(&error, ErrorKind::Caller, &["not loaded"]);
    });
}

#[test]
fn a_kept_output_outlives_the_segment_that_gave_it() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let loaded = scratch.load_model("dense", &dense(1)).await;
        let expected = scratch.run(&loaded, &dense_inputs(2, 1)).await["y"].clone();
        let keep = [("y", Output::Keep(id("a")))];
        let steps = vec![step(&loaded, "x", Input::Inline(matrix(2, 1)), &keep)];
        engine.run(program(&scratch, steps)).await.unwrap();
        engine.unload(loaded.id).await.unwrap();
        assert_eq!(engine.get(&id("a")).await.unwrap(), expected);
        let other = scratch.load_model("other", &dense(2)).await;
        let steps = vec![step(&other, "x", Input::Kept(id("a")), &[("y", Output::Return)])];
        engine.run(program(&scratch, steps)).await.unwrap();
    });
}

#[test]
fn a_kept_output_is_no_view_of_an_input_or_a_weight() {
    use holdfast_graph::DataType::F32;
    use holdfast_testkit::{Builder, Init, fixed};
    let mut builder = Builder::new("views", 1);
    let dims = [fixed(16), fixed(32)];
    let x = builder.input("x", F32, &dims);
    let weight = builder.weight("weight", &[16, 32], Init::fan_in(1));
    let shape = builder.initializer("shape", &integers(&[2], |index| [32, 16][index]));
    for (name, node) in [("same", "Identity"), ("reshaped", "Reshape"), ("flat", "Flatten")] {
        let operands = [x.as_str(), &shape];
        let value = builder.node(node, &operands[..1 + usize::from(node == "Reshape")], &[]);
        let dims = if node == "Reshape" { [fixed(32), fixed(16)] } else { dims.clone() };
        builder.output(name, &value, F32, &dims);
    }
    builder.output("weight_itself", &weight, F32, &dims);
    let model = builder.finish().unwrap();

    /// Bytes that do not stay what they were when nobody holds them any more.
    struct Volatile(Vec<u8>);
    impl AsRef<[u8]> for Volatile {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Volatile {
        fn drop(&mut self) {
            std::hint::black_box(&mut self.0).fill(0xff);
        }
    }

    let scratch = Scratch::new();
    let engine = &scratch.engine;
    block_on(async {
        let loaded = scratch.load_model("views", &model).await;
        let values: Vec<f32> = (0..16 * 32).map(|index| index as f32).collect();
        let original = Tensor::from_slice(&[16, 32], &values).unwrap();
        let bytes = bytes::Bytes::from_owner(Volatile(original.bytes().to_vec()));
        let volatile = Tensor::new(F32, vec![16, 32], bytes).unwrap();
        let names = ["same", "reshaped", "flat", "weight_itself"];
        let keep = names.map(|name| (name, Output::Keep(id(name))));
        let steps = vec![step(&loaded, "x", Input::Inline(volatile), &keep)];
        let weight = scratch.run(&loaded, &[("x".to_owned(), original.clone())].into()).await;
        engine.run(program(&scratch, steps)).await.unwrap();
        engine.unload(loaded.id).await.unwrap();
        for name in &names[..3] {
            assert_eq!(engine.get(&id(name)).await.unwrap().bytes(), original.bytes(), "{name}");
        }
        assert_eq!(engine.get(&id(names[3])).await.unwrap(), weight[names[3]]);
    });
}

fn id(name: &str) -> TensorId {
    TensorId(name.to_owned())
}

/// The output `y` of an earlier step.
fn step_output(step: usize) -> Input {
    Input::Step { step, output: "y".to_owned() }
}

fn step(segment: &Loaded, name: &str, input: Input, outputs: &[(&str, Output)]) -> Step {
    let outputs = outputs.iter().map(|(name, output)| ((*name).to_owned(), output.clone()));
    Step { segment: segment.id, inputs: vec![(name.to_owned(), input)], outputs: outputs.collect() }
}

fn program(scratch: &Scratch, steps: Vec<Step>) -> Program {
    Program { request: RequestId(scratch.request()), deadline: None, steps }
}

/// Checks an error's kind and that it, or what caused it, has these parts.
fn check(error: &DeviceError, kind: ErrorKind, parts: &[&str]) {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("; {error}"));
        cause = error.source();
    }
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
