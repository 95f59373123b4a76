//! Cancelling, deadlines and the bounded queue. Programs that must not end by themselves run a
//! loop of more rounds than anyone waits for.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::time::Duration;

use common::inputs::minilm_inputs;
use common::models::{ENDLESS, dense, dense_inputs, rounds, rounds_inputs};
use common::{MINILM, Named, Scratch, block_on, options, outputs};
use holdfast_devices::cpu::CpuOptions;
use holdfast_devices::{
    Device, DeviceError, ErrorKind, Loaded, Outcome, Output, Program, RequestId, TensorId,
};
use tokio::task::JoinHandle;

/// Longer than anything here takes on the slowest machine, shorter than an endless program.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(150);

/// An engine that runs one program at a time, with a model that runs as long as it is told to.
struct Stage {
    scratch: Scratch,
    rounds: Loaded,
}

impl Stage {
    async fn new(options: CpuOptions) -> Stage {
        let scratch = Scratch::with(options);
        let rounds = scratch.load_model("rounds", &rounds(1)).await;
        Stage { scratch, rounds }
    }

    fn endless(&self, request: &str) -> Program {
        let inputs = rounds_inputs(ENDLESS, 1);
        Program::single(request, self.rounds.id, inputs, ["y".to_owned()])
    }

    fn start(&self, program: Program) -> JoinHandle<Result<Outcome, DeviceError>> {
        let engine = self.scratch.engine.clone();
        tokio::spawn(async move { engine.run(program).await })
    }

    async fn until_in_flight(&self, count: usize) {
        let there = async {
            while self.scratch.engine.stats().await.unwrap().in_flight != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(there).await;
    }

    /// Checks that the engine has nothing left to do and computes what it should.
    async fn works(&self) {
        let expected = within(self.quick()).await;
        assert_eq!(within(self.quick()).await, expected);
        let other = Scratch::new();
        let rounds = other.load_model("rounds", &rounds(1)).await;
        assert_eq!(other.run(&rounds, &rounds_inputs(7, 2)).await, expected);
        let stats = self.scratch.engine.stats().await.unwrap();
        assert_eq!(stats.in_flight, 0);
    }

    async fn quick(&self) -> Named {
        self.scratch.run(&self.rounds, &rounds_inputs(7, 2)).await
    }
}

fn one_at_a_time() -> CpuOptions {
    CpuOptions { concurrency: 1, ..options() }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes too long")
}

fn kind<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn request(name: &str) -> RequestId {
    RequestId(name.to_owned())
}

#[test]
fn a_running_program_is_cancelled() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let engine = &stage.scratch.engine;
        let mut program = stage.endless("long");
        program.steps[0].outputs.push(("y".to_owned(), Output::Keep(TensorId("y".to_owned()))));
        let running = stage.start(program);
        stage.scratch.until_running().await;
        assert!(engine.cancel(&request("long")));
        assert_eq!(kind(within(running).await.unwrap()), ErrorKind::Cancelled);
        assert!(!engine.cancel(&request("long")));
        assert_eq!(engine.stats().await.unwrap().tensors, 0);
        stage.works().await;
    });
}

#[test]
fn a_queued_program_is_cancelled_and_the_running_one_goes_on() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let engine = &stage.scratch.engine;
        let running = stage.start(stage.endless("long"));
        stage.scratch.until_running().await;
        let queued = stage.start(stage.endless("queued"));
        stage.until_in_flight(2).await;
        assert!(engine.cancel(&request("queued")));
        assert_eq!(kind(within(queued).await.unwrap()), ErrorKind::Cancelled);
        assert!(!running.is_finished());
        assert!(engine.cancel(&request("long")));
        assert_eq!(kind(within(running).await.unwrap()), ErrorKind::Cancelled);
        stage.works().await;
    });
}

#[test]
fn a_program_that_waits_for_a_busy_segment_is_stopped_too() {
    block_on(async {
        let stage = Stage::new(CpuOptions { concurrency: 3, ..options() }).await;
        let engine = &stage.scratch.engine;
        let running = stage.start(stage.endless("long"));
        stage.until_in_flight(1).await;
        tokio::time::sleep(SHORT).await;
        let waiting = stage.start(stage.endless("waiting"));
        let late = Program { deadline: Some(SHORT), ..stage.endless("late") };
        assert_eq!(kind(within(stage.start(late)).await.unwrap()), ErrorKind::Timeout);
        assert!(engine.cancel(&request("waiting")));
        assert_eq!(kind(within(waiting).await.unwrap()), ErrorKind::Cancelled);
        assert!(!running.is_finished());
        assert!(engine.cancel(&request("long")));
        assert_eq!(kind(within(running).await.unwrap()), ErrorKind::Cancelled);
        stage.works().await;
    });
}

#[test]
fn nothing_is_cancelled_where_there_is_no_such_request() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let running = stage.start(stage.endless("long"));
        stage.scratch.until_running().await;
        assert!(!stage.scratch.engine.cancel(&request("other")));
        assert!(!running.is_finished());
        assert!(stage.scratch.engine.cancel(&request("long")));
        within(running).await.unwrap().unwrap_err();
    });
}

#[test]
fn a_deadline_ends_a_running_program() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let program = Program { deadline: Some(SHORT), ..stage.endless("late") };
        assert_eq!(kind(within(stage.scratch.engine.run(program)).await), ErrorKind::Timeout);
        stage.works().await;
    });
}

#[test]
fn a_deadline_ends_a_queued_program() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let running = stage.start(stage.endless("long"));
        stage.scratch.until_running().await;
        let program = Program { deadline: Some(SHORT), ..stage.endless("late") };
        assert_eq!(kind(within(stage.scratch.engine.run(program)).await), ErrorKind::Timeout);
        assert!(!running.is_finished());
        assert!(stage.scratch.engine.cancel(&request("long")));
        within(running).await.unwrap().unwrap_err();
        stage.works().await;
    });
}

#[test]
fn a_program_whose_time_is_over_is_not_started_however_short_it_is() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let mut program = stage.scratch.program(&stage.rounds, &rounds_inputs(7, 2));
        program.deadline = Some(Duration::ZERO);
        assert_eq!(kind(stage.scratch.engine.run(program).await), ErrorKind::Timeout);
        stage.works().await;
    });
}

#[test]
fn a_program_that_is_done_in_time_is_not_stopped() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let inputs = rounds_inputs(7, 2);
        let mut program = stage.scratch.program(&stage.rounds, &inputs);
        program.deadline = Some(LONG);
        let outcome = stage.scratch.engine.run(program).await.unwrap();
        assert_eq!(outputs(outcome), stage.quick().await);
    });
}

#[test]
fn a_dropped_future_cancels_its_program() {
    block_on(async {
        let stage = Stage::new(one_at_a_time()).await;
        let running = stage.start(stage.endless("long"));
        stage.scratch.until_running().await;
        let queued = stage.start(stage.endless("queued"));
        stage.until_in_flight(2).await;
        queued.abort();
        running.abort();
        assert!(within(queued).await.unwrap_err().is_cancelled());
        assert!(within(running).await.unwrap_err().is_cancelled());
        stage.until_in_flight(0).await;
        // The only turn is free again only if the engine has stopped.
        stage.works().await;
    });
}

#[test]
fn a_full_queue_refuses_one_more() {
    block_on(async {
        let stage = Stage::new(CpuOptions { queue: 2, ..one_at_a_time() }).await;
        let engine = &stage.scratch.engine;
        let names = ["first", "second", "third"];
        let mut programs = Vec::new();
        for (index, name) in names.iter().enumerate() {
            programs.push(stage.start(stage.endless(name)));
            stage.until_in_flight(index + 1).await;
        }
        let refused = engine.run(stage.endless("fourth")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(refused.to_string().contains("3 programs"), "{refused}");
        // A refused request leaves nothing behind, and room is room for anyone.
        assert!(!engine.cancel(&request("fourth")));
        assert!(engine.cancel(&request("second")));
        assert_eq!(kind(within(programs.remove(1)).await.unwrap()), ErrorKind::Cancelled);
        let fourth = stage.start(stage.endless("fourth"));
        stage.until_in_flight(3).await;
        for name in ["first", "third", "fourth"] {
            assert!(engine.cancel(&request(name)));
        }
        for program in programs.into_iter().chain([fourth]) {
            assert_eq!(kind(within(program).await.unwrap()), ErrorKind::Cancelled);
        }
        stage.works().await;
    });
}

#[test]
fn many_programs_at_once_all_get_their_own_answers() {
    let scratch = Scratch::with(CpuOptions { concurrency: 4, ..options() });
    let graph = scratch.import_third_party(MINILM);
    block_on(async {
        let minilm = scratch.load(&graph).await;
        let dense = scratch.load_model("dense", &dense(1)).await;
        let mut work = Vec::new();
        for index in 0..16 {
            work.push((&minilm, minilm_inputs(1 + index % 3, 4 + index)));
            work.push((&dense, dense_inputs(1 + index, index as u64)));
        }
        let mut expected = Vec::new();
        for (loaded, inputs) in &work {
            expected.push(scratch.run(loaded, inputs).await);
        }
        for _ in 0..2 {
            let start = |(loaded, inputs): &(&Loaded, Named)| {
                let (engine, program) = (scratch.engine.clone(), scratch.program(loaded, inputs));
                tokio::spawn(async move { engine.run(program).await })
            };
            let started: Vec<_> = work.iter().map(start).collect();
            for (index, program) in started.into_iter().enumerate() {
                let found = outputs(within(program).await.unwrap().unwrap());
                assert!(found == expected[index], "program {index} got other bits");
            }
        }
        let stats = scratch.engine.stats().await.unwrap();
        assert_eq!((stats.in_flight, stats.succeeded, stats.failed), (0, 96, 0));
    });
}
