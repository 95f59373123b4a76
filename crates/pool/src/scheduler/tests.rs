//! What the scheduler does, with devices that do what they are told. The clock is the test's.

mod failing;

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_devices::ErrorKind;
use tokio::time::Instant;

use crate::choice::{Choice, Choices};
use crate::request::{Priority, Request, RunError};
use crate::scripted::{CHOICE, Deed, Scene, Scripted, is_right, request};

fn loads(device: &Scripted) -> usize {
    device.log().iter().filter(|line| line.starts_with("load")).count()
}

fn runs(device: &Scripted) -> Vec<String> {
    let log = device.log();
    let runs = log.iter().filter_map(|line| line.strip_prefix("run "));
    runs.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn ten_requests_cause_one_load() {
    let device = Scripted::with("a", true, Duration::from_millis(1));
    let scene = Scene::new(&[&device]);
    let requests: Vec<_> = (0..10).map(|value| request(1, value as f32)).collect();
    let answers = join_all(requests.iter().map(|request| scene.run(request))).await;
    for (value, answer) in answers.iter().enumerate() {
        let answer = answer.as_ref().unwrap();
        assert!(is_right(answer, value as f32));
        assert!(!answer.loaded.took.is_zero(), "all of them waited for it");
    }
    assert_eq!(loads(&device), 1);
    assert!(scene.run(&request(1, 0.0)).await.unwrap().loaded.took.is_zero());
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn two_models_are_two_loads() {
    let device = Scripted::new("a");
    let scene = Scene::new(&[&device]);
    let (one, two) = (request(1, 1.0), request(2, 2.0));
    let (one, two) = tokio::join!(scene.run(&one), scene.run(&two));
    assert!(is_right(&one.unwrap(), 1.0) && is_right(&two.unwrap(), 2.0));
    assert_eq!(loads(&device), 2);
}

#[tokio::test(start_paused = true)]
async fn priority_goes_before_arrival() {
    let device = Scripted::new("a").runs([Deed::Hang]);
    let scene = Scene::new(&[&device]);
    let mut requests: Vec<_> = (0..6).map(|value| request(1, value as f32)).collect();
    requests[2].priority = Priority::Low;
    requests[4].priority = Priority::High;
    let all = join_all(requests.iter().map(|request| scene.run(request)));
    let (answers, ()) = tokio::join!(all, async {
        // The first is running by the time that the others are sorted.
        scene.queued(5).await;
        device.go_on();
    });
    assert!(answers.iter().all(Result::is_ok));
    // All came while it was loading; by the time that it was there, the high one was first.
    let order = ["[4.0]", "[0.0]", "[1.0]", "[3.0]", "[5.0]", "[2.0]"];
    assert_eq!(runs(&device), order);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_request_that_waits() {
    let device = Scripted::new("a").runs([Deed::Succeed, Deed::Hang]);
    let scene = Scene::new(&[&device]);
    scene.run(&request(1, 0.0)).await.unwrap();
    let (first, mut second) = (request(1, 1.0), request(1, 2.0));
    second.deadline = Some(Duration::from_secs(3));
    let asked = Instant::now();
    let (first, second) = tokio::join!(scene.run(&first), async {
        let answer = scene.run(&second).await;
        device.go_on();
        answer
    });
    assert!(first.is_ok());
    let error = second.unwrap_err();
    assert!(matches!(error, RunError::Expired(_)), "{error}");
    assert!(error.to_string().contains("waited 3.0 s"), "{error}");
    assert_eq!(asked.elapsed().as_secs(), 3);
    assert_eq!(runs(&device), ["[0.0]", "[1.0]"], "it never ran");
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn loading_does_not_count_for_the_deadline() {
    let device = Scripted::new("a").loads([Deed::Hang]);
    let scene = Scene::new(&[&device]);
    let mut asked = request(1, 1.0);
    asked.deadline = Some(Duration::from_secs(1));
    let (answer, ()) = tokio::join!(scene.run(&asked), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        device.go_on();
    });
    assert!(is_right(&answer.unwrap(), 1.0));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_load_to_begin_counts_for_the_deadline() {
    let device = Scripted::new("a").runs([Deed::Succeed, Deed::Hang]);
    let scene = Scene::new(&[&device]);
    scene.run(&request(1, 0.0)).await.unwrap();
    // The device is busy with another model, and this one is loaded nowhere.
    let (first, mut second) = (request(1, 1.0), request(2, 2.0));
    second.deadline = Some(Duration::from_secs(2));
    let asked = Instant::now();
    tokio::select! {
        biased;
        _ = scene.run(&first) => panic!("it hangs"),
        told = scene.run(&second) => assert!(matches!(told, Err(RunError::Expired(_))), "{told:?}"),
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("its deadline never passes"),
    }
    assert_eq!(asked.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_way_to_a_device_counts_too() {
    let far = Scripted::far("far", Duration::from_millis(300));
    let near = Scripted::with("near", true, Duration::from_millis(20));
    let scene = Scene::new(&[&far]);
    scene.run(&request(1, 0.0)).await.unwrap();
    // Many wait, so it pays to load the model there too.
    scene.attach(&near, 1);
    let requests: Vec<_> = (0..50u8).map(|value| request(1, value.into())).collect();
    let answers = join_all(requests.iter().map(|request| scene.run(request))).await;
    assert!(answers.iter().all(Result::is_ok) && !runs(&near).is_empty());
    for value in 0..3u8 {
        let answer = scene.run(&request(1, value.into())).await.unwrap();
        assert_eq!(answer.outcome.device.name, "near");
    }
}

/// Two who ask without end, each for a model of its own that only the first device has at first.
async fn both_ask(times: usize) -> (usize, usize) {
    let takes = Duration::from_millis(10);
    let (near, idle) = (Scripted::with("near", true, takes), Scripted::with("idle", true, takes));
    let scene = Scene::new(&[&near]);
    for model in [1, 2] {
        scene.run(&request(model, 0.0)).await.unwrap();
    }
    scene.attach(&idle, 1);
    let ask = async |model: u8| {
        for value in 0..times {
            let answer = scene.run(&request(model, value as f32)).await.unwrap();
            assert!(is_right(&answer, value as f32));
        }
    };
    tokio::join!(ask(1), ask(2));
    (loads(&near), loads(&idle))
}

#[tokio::test(start_paused = true)]
async fn who_keeps_waiting_while_a_device_is_idle_gets_the_model_there() {
    let (near, idle) = both_ask(60).await;
    // With one of them it would do, but both have waited.
    assert!(near == 2 && (1..=2).contains(&idle), "{near} and {idle}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_once_does_not() {
    assert_eq!(both_ask(2).await, (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_leaves_the_queue_at_once() {
    let device = Scripted::new("a").runs([Deed::Hang]);
    let scene = Scene::new(&[&device]);
    let (first, second) = (request(1, 1.0), request(1, 2.0));
    let first = scene.run(&first);
    tokio::pin!(first);
    tokio::select! {
        biased;
        _ = &mut first => panic!("it hangs"),
        _ = scene.run(&second) => panic!("it waits for the first"),
        () = async {
            while device.running().0 == 0 { tokio::task::yield_now().await; }
            scene.queued(1).await;
        } => {}
    }
    scene.queued(0).await;
    device.go_on();
    assert!(is_right(&first.await.unwrap(), 1.0));
    assert_eq!(runs(&device), ["[1.0]"]);
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_runs_frees_its_slot() {
    let device = Scripted::new("a").runs([Deed::Hang]);
    let scene = Scene::new(&[&device]);
    let hung = request(1, 1.0);
    tokio::select! {
        biased;
        _ = scene.run(&hung) => panic!("it hangs"),
        () = async { while device.running().0 == 0 { tokio::task::yield_now().await; } } => {}
    }
    assert!(scene.is_clean());
    assert!(is_right(&scene.run(&request(1, 2.0)).await.unwrap(), 2.0));
}

/// Room for two models that have no weights.
const TWO: u64 = 8 << 20;

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_model_makes_room() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 1, TWO);
    for model in [1, 2, 1, 3, 1, 2] {
        assert!(scene.run(&request(model, 1.0)).await.is_ok());
    }
    let events: Vec<String> =
        device.log().into_iter().filter(|line| !line.starts_with("run")).collect();
    let id = |model| {
        use holdfast_devices::Segment;
        Segment::new(request(model, 0.0).graph).id()
    };
    let expected = [
        format!("load {}", id(1)),
        format!("load {}", id(2)),
        format!("unload {}", id(2)),
        format!("load {}", id(3)),
        format!("unload {}", id(3)),
        format!("load {}", id(2)),
    ];
    assert_eq!(events, expected);
    assert_eq!(scene.scheduler.state().account.unloads, 2);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_in_use_is_not_unloaded() {
    let device = Scripted::new("a").runs([Deed::Hang]);
    let scene = Scene::with(&[], 1, TWO / 2);
    scene.attach(&device, 2);
    let (hung, other) = (request(1, 1.0), request(2, 2.0));
    let hung = scene.run(&hung);
    tokio::pin!(hung);
    tokio::select! {
        biased;
        _ = &mut hung => panic!("it hangs"),
        _ = scene.run(&other) => panic!("there is no room"),
        () = tokio::time::sleep(Duration::from_secs(5)) => {}
    }
    assert!(!device.log().iter().any(|line| line.starts_with("unload")));
    let (hung, other, ()) = tokio::join!(hung, scene.run(&other), async {
        scene.queued(1).await;
        device.go_on();
    });
    assert!(is_right(&hung.unwrap(), 1.0) && is_right(&other.unwrap(), 2.0));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_fits_is_refused() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 1, 1);
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(error.to_string().contains("larger than what a device may hold"), "{error}");
    assert_eq!(device.log(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn two_models_without_room_for_both_are_both_served() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 1, TWO / 2);
    let requests: Vec<_> = (0..20).map(|value| request(value % 2, value.into())).collect();
    let answers = join_all(requests.iter().map(|request| scene.run(request))).await;
    for (value, answer) in answers.iter().enumerate() {
        assert!(is_right(answer.as_ref().unwrap(), value as f32));
    }
}

/// Runs these at once, as one caller.
async fn together(scene: &Scene, values: std::ops::Range<u8>) -> Vec<usize> {
    let requests: Vec<_> = values.clone().map(|value| request(1, value.into())).collect();
    let hold = scene.scheduler.hold();
    let all = join_all(requests.iter().map(|request| scene.run(request)));
    let (answers, ()) = tokio::join!(all, async { drop(hold) });
    let right = |(value, answer): (u8, &Result<crate::Answer, RunError>)| {
        let answer = answer.as_ref().unwrap();
        assert!(is_right(answer, value.into()), "{value}: {answer:?}");
        answer.batch_rows
    };
    values.zip(&answers).map(right).collect()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_proven_once_and_used_from_then_on() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 8, u64::MAX);
    assert_eq!(together(&scene, 0..8).await, [1; 8], "answered by the runs one by one");
    assert_eq!(together(&scene, 10..18).await, [8; 8]);
    let log = runs(&device);
    assert_eq!(log[8], "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]", "the proof");
    assert_eq!(log.len(), 10);
    assert_eq!(scene.scheduler.state().proofs.counts(), (1, 0));
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_changes_bits_is_never_used() {
    let device = Scripted::with("a", false, Duration::ZERO);
    let scene = Scene::with(&[&device], 2, u64::MAX);
    for _ in 0..3 {
        assert_eq!(together(&scene, 0..2).await, [1; 2]);
    }
    let batches = runs(&device).iter().filter(|run| run.contains(',')).count();
    assert_eq!(batches, 1, "the one that refuted it");
    assert_eq!(scene.scheduler.state().proofs.counts(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_all_alike_prove_nothing() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 2, u64::MAX);
    let same = request(1, 5.0);
    for _ in 0..3 {
        let hold = scene.scheduler.hold();
        let both = async { tokio::join!(scene.run(&same), scene.run(&same)) };
        let ((one, two), ()) = tokio::join!(both, async { drop(hold) });
        assert!(is_right(&one.unwrap(), 5.0) && is_right(&two.unwrap(), 5.0));
    }
    assert_eq!(scene.scheduler.state().proofs.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_lost_is_run_one_by_one_elsewhere() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 4, u64::MAX);
    together(&scene, 0..4).await;
    let dying = device.clone().runs([Deed::Fail(ErrorKind::StateLost)]);
    assert_eq!(together(&scene, 4..8).await, [1; 4], "each goes alone after a failure");
    assert_eq!(loads(&dying), 2);
    assert_eq!(together(&scene, 8..12).await, [4; 4]);
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn one_wrong_request_does_not_spoil_its_batch() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 2, u64::MAX);
    together(&scene, 0..2).await;
    let spoilt = device.clone().runs([Deed::Fail(ErrorKind::Caller)]);
    assert_eq!(together(&scene, 2..4).await, [1; 2]);
    assert_eq!(loads(&spoilt), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_its_batch_takes_nobody_along() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 2, u64::MAX);
    together(&scene, 0..2).await;
    let device = device.runs([Deed::Hang]);
    let (one, two) = (request(1, 5.0), request(1, 6.0));
    let hold = scene.scheduler.hold();
    let one = scene.run(&one);
    tokio::pin!(one);
    {
        let two = scene.run(&two);
        tokio::pin!(two);
        let mut hold = Some(hold);
        tokio::select! {
            biased;
            _ = &mut one => panic!("it hangs"),
            _ = &mut two => panic!("it hangs"),
            () = async {
                hold.take();
                while device.running().0 == 0 { tokio::task::yield_now().await; }
            } => {}
        }
    }
    device.go_on();
    let answer = one.await.unwrap();
    assert!(is_right(&answer, 5.0));
    assert_eq!(answer.batch_rows, 2);
    assert!(scene.is_clean());
}

/// The most that ran at once of many requests on a device with two slots.
async fn most_at_once(share: f64) -> usize {
    let device = Scripted::with("a", true, Duration::from_millis(5));
    device.offers(share);
    let scene = Scene::new(&[]);
    scene.attach(&device, 2);
    let requests: Vec<_> = (0..6).map(|value| request(1, value as f32)).collect();
    let answers = join_all(requests.iter().map(|request| scene.run(request))).await;
    for (value, answer) in answers.iter().enumerate() {
        assert!(is_right(answer.as_ref().unwrap(), value as f32));
    }
    device.running().1
}

#[tokio::test(start_paused = true)]
async fn a_device_that_offers_less_is_given_less() {
    assert_eq!(most_at_once(1.0).await, 2);
    assert_eq!(most_at_once(0.3).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_offers_nothing_is_given_nothing() {
    let (resting, working) = (Scripted::new("a"), Scripted::new("b"));
    let scene = Scene::new(&[&resting, &working]);
    resting.offers(0.0);
    assert!(is_right(&scene.run(&request(1, 1.0)).await.unwrap(), 1.0));
    working.offers(0.0);
    // It is noticed when the devices are looked at, and whoever waits is told.
    let told = scene.run(&request(1, 2.0)).await;
    assert!(matches!(told, Err(RunError::NoDevice(_))), "{told:?}");
    assert!(resting.log().is_empty());
    resting.offers(1.0);
    // Whoever brings it again knows that it offers something.
    scene.attach(&resting, 1);
    assert!(is_right(&scene.run(&request(1, 3.0)).await.unwrap(), 3.0));
    assert_eq!(loads(&resting), 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_withdrawn_finishes_what_it_has_and_gets_nothing_more() {
    let (leaving, staying) = (Scripted::new("a").runs([Deed::Hang]), Scripted::new("b"));
    let scene = Scene::new(&[&leaving]);
    let (first, second) = (request(1, 1.0), request(1, 2.0));
    let (first, ()) = tokio::join!(scene.run(&first), async {
        while leaving.running().0 == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(scene.scheduler.crew("a").busy, 1);
        scene.scheduler.withdraw("a");
        assert!(scene.scheduler.is_withdrawn("a"));
        scene.attach(&staying, 1);
        assert!(is_right(&scene.run(&second).await.unwrap(), 2.0));
        leaving.go_on();
    });
    assert!(is_right(&first.unwrap(), 1.0));
    assert_eq!((runs(&leaving).len(), runs(&staying).len()), (1, 1));
    let crew = scene.scheduler.crew("a");
    assert_eq!((crew.busy, crew.answered), (0, 1));
    // One of the same page that comes later gets nothing either.
    staying.go();
    scene.attach(&Scripted::new("a"), 1);
    let told = scene.run(&request(1, 3.0)).await;
    assert!(matches!(told, Err(RunError::NoDevice(_))), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_told_by_backend() {
    let device = Scripted::new("a").runs([Deed::Hang]);
    let scene = Scene::new(&[&device]);
    assert!(scene.scheduler.demand().is_empty());
    let requests: Vec<_> = (0..4).map(|value| request(1, value as f32)).collect();
    let all = join_all(requests.iter().map(|request| scene.run(request)));
    let (answers, ()) = tokio::join!(all, async {
        scene.queued(3).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let demand = scene.scheduler.demand();
        assert_eq!(demand.len(), 1);
        assert_eq!((demand[0].waiting, demand[0].slots), (3, 1));
        assert!(demand[0].oldest >= Duration::from_secs(2));
        device.go_on();
    });
    assert!(answers.iter().all(Result::is_ok));
    assert!(scene.scheduler.demand().is_empty());
}

#[tokio::test(start_paused = true)]
async fn left_to_itself_a_busy_backend_is_helped_and_then_the_faster_one_is_used() {
    let slow = Scripted::with("cpu", true, Duration::from_millis(40));
    let fast = Scripted::with("wasm", true, Duration::from_millis(5));
    let scene = Scene::new(&[&fast]);
    scene.attach_as(Choice::Cpu, &slow, 1);
    let with = |choices| Request { choices, ..request(1, 1.0) };
    let auto = with(Choices::Auto);
    let where_it_ran = async |request: &Request| scene.run(request).await.unwrap().outcome.device;
    // The usual order, for as long as nobody has to wait.
    for _ in 0..2 {
        assert_eq!(where_it_ran(&auto).await.name, "cpu");
    }
    let three = join_all([&auto, &auto, &auto].map(|request| scene.run(request))).await;
    let ran = three.into_iter().map(|answer| answer.unwrap().outcome.device.name.clone());
    assert_eq!(ran.collect::<Vec<_>>(), ["cpu", "wasm", "cpu"], "one tries it, and not all");
    // Now both are known.
    assert_eq!(where_it_ran(&auto).await.name, "wasm");
    // What a user prefers stays as it is.
    let preferred = with(Choices::Ordered(vec![Choice::Cpu, CHOICE]));
    assert_eq!(where_it_ran(&preferred).await.name, "cpu");
}
