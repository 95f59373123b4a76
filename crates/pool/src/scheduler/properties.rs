//! Whatever happens in whatever order: every accepted request is answered exactly once, order is
//! kept, and nothing is left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_devices::ErrorKind;
use proptest::prelude::*;
use tokio::time::Instant;

use crate::request::{Priority, RunError};
use crate::scripted::{Deed, Scene, Scripted, is_right, request};

/// One request of a run.
#[derive(Clone, Debug)]
struct Plan {
    model: u8,
    priority: Priority,
    arrives: u64,
    /// When its caller leaves.
    leaves: Option<u64>,
    deadline: Option<u64>,
}

impl Plan {
    /// Whether its deadline has passed after so long.
    fn is_over(&self, after: Duration) -> bool {
        self.deadline.is_some_and(|deadline| after >= Duration::from_millis(deadline))
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let some = |chance, range: std::ops::Range<u64>| prop::option::weighted(chance, range);
    (0..3u8, priority, 0..40u64, some(0.2, 0..60), some(0.2, 1..80)).prop_map(
        |(model, priority, arrives, leaves, deadline)| Plan {
            model,
            priority,
            arrives,
            leaves,
            deadline,
        },
    )
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        12 => Just(Deed::Succeed),
        2 => Just(Deed::Fail(ErrorKind::StateLost)),
        1 => Just(Deed::Fail(ErrorKind::Timeout)),
        1 => Just(Deed::Fail(ErrorKind::Device)),
        1 => Just(Deed::Fail(ErrorKind::Busy)),
        1 => Just(Deed::Fail(ErrorKind::Memory)),
        1 => Just(Deed::LoseEngine),
        1 => Just(Deed::Go),
    ]
}

fn deeds(most: usize) -> impl Strategy<Value = Vec<Deed>> {
    prop::collection::vec(deed(), 0..most)
}

/// How one request ended.
#[derive(Debug)]
enum End {
    Answered,
    /// After so long.
    Failed(RunError, Duration),
    Left,
}

/// What happens to the runs and to the loads of a device.
type Script = (Vec<Deed>, Vec<Deed>);

async fn check(plans: Vec<Plan>, scripts: Vec<Script>, max_batch: usize, room: u64) {
    let devices: Vec<Scripted> = scripts
        .into_iter()
        .enumerate()
        .map(|(number, (runs, loads))| {
            let device = Scripted::with(&format!("d{number}"), true, Duration::from_millis(5));
            device.runs(runs).loads(loads)
        })
        .collect();
    let last = Scripted::with("last", true, Duration::from_millis(5));
    let all: Vec<&Scripted> = devices.iter().chain([&last]).collect();
    let scene = Scene::with(&all, max_batch, room);
    let answers = AtomicUsize::new(0);
    let each = plans.iter().enumerate().map(|(number, plan)| {
        let (scene, answers) = (&scene, &answers);
        async move {
            tokio::time::sleep(Duration::from_millis(plan.arrives)).await;
            let mut asked = request(plan.model, number as f32);
            asked.priority = plan.priority;
            asked.deadline = plan.deadline.map(Duration::from_millis);
            let since = Instant::now();
            let run = async {
                let result = scene.run(&asked).await;
                answers.fetch_add(1, Ordering::Relaxed);
                match result {
                    Ok(answer) => {
                        assert!(is_right(&answer, number as f32), "an answer to another request");
                        // Two that were lost, and one that refused it.
                        assert!(answer.failed_on.len() <= 3);
                        End::Answered
                    }
                    Err(error) => End::Failed(error, since.elapsed()),
                }
            };
            match plan.leaves {
                None => run.await,
                Some(leaves) => tokio::time::timeout(Duration::from_millis(leaves), run)
                    .await
                    .unwrap_or(End::Left),
            }
        }
    });
    // Longer than anything can take on the test's clock: if it passes, somebody was forgotten.
    let ends = tokio::time::timeout(Duration::from_secs(3600), join_all(each)).await.unwrap();
    let answered = ends.iter().filter(|end| !matches!(end, End::Left)).count();
    assert_eq!(answers.load(Ordering::Relaxed), answered, "once each");
    for (plan, end) in plans.iter().zip(&ends) {
        match end {
            End::Answered => {}
            End::Left => assert!(plan.leaves.is_some()),
            End::Failed(RunError::Expired(_), after) => assert!(plan.is_over(*after)),
            // A device that took too long is no reason, as long as the caller has time.
            End::Failed(RunError::Device(error), after) => {
                assert!(error.kind() == ErrorKind::Timeout && plan.is_over(*after), "{error}");
            }
            End::Failed(RunError::Failed(failures), _) => {
                assert!((3..=4).contains(&failures.len()))
            }
            // Some device was told to refuse it.
            End::Failed(RunError::NoDevice(passed), _) => {
                assert!(passed[0].reason.contains("told to"), "{passed:?}");
            }
            End::Failed(other, _) => panic!("{other}"),
        }
    }
    // A batch whose callers have all left may still be running.
    let clean = async {
        while !scene.is_clean() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), clean).await.expect("something was left behind");
    assert!(all.iter().all(|device| device.running().0 == 0));
    assert!(all.iter().all(|device| device.running().1 <= 1), "more than it has slots");
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered_once(
        plans in prop::collection::vec(plan(), 1..40),
        scripts in prop::collection::vec((deeds(12), deeds(4)), 0..4),
        max_batch in prop::sample::select(vec![1, 2, 8]),
        room in prop::sample::select(vec![u64::MAX, 8 << 20, 4 << 20]),
    ) {
        block_on(check(plans, scripts, max_batch, room));
    }

    #[test]
    fn order_is_kept_within_a_group(priorities in prop::collection::vec(
        prop::sample::select(Priority::ALL.to_vec()), 1..60,
    )) {
        block_on(async {
            let device = Scripted::new("a");
            let scene = Scene::new(&[&device]);
            let ask = |(number, priority): (usize, &Priority)| {
                let mut asked = request(1, number as f32);
                asked.priority = *priority;
                asked
            };
            let requests: Vec<_> = priorities.iter().enumerate().map(ask).collect();
            let hold = scene.scheduler.hold();
            let all = join_all(requests.iter().map(|request| scene.run(request)));
            let (answers, ()) = tokio::join!(all, async { drop(hold) });
            assert!(answers.iter().all(Result::is_ok));
            let mut expected: Vec<(Priority, usize)> =
                priorities.iter().copied().zip(0..).collect();
            expected.sort();
            let expected: Vec<String> =
                expected.iter().map(|(_, number)| format!("run [{:?}]", *number as f32)).collect();
            assert_eq!(device.log()[1..], expected);
        });
    }
}
