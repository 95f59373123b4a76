//! What the scheduler does, with devices that do what they are told. The clock is the test's.

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

#[tokio::test(start_paused = true)]
async fn work_of_a_device_that_goes_is_done_elsewhere() {
    let (dying, other) = (Scripted::new("dying").runs([Deed::Go]), Scripted::new("other"));
    let scene = Scene::new(&[&dying, &other]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert!(is_right(&answer, 1.0));
    assert_eq!(answer.outcome.device.name, "other");
    let failed: Vec<&str> = answer.failed_on.iter().map(|f| f.device.as_str()).collect();
    assert_eq!(failed, ["dying"]);
    assert_eq!(scene.scheduler.state().account.failovers, 1);
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_is_loaded_again_on_the_same_device() {
    let device = Scripted::new("a").runs([Deed::Fail(ErrorKind::StateLost)]);
    let scene = Scene::new(&[&device]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert!(is_right(&answer, 1.0));
    assert!(answer.failed_on.is_empty(), "it had not begun");
    assert_eq!(loads(&device), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_began_is_not_charged_for_what_others_lost() {
    let device = Scripted::new("a").runs([Deed::Fail(ErrorKind::StateLost); 5]);
    let scene = Scene::new(&[&device]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert!(is_right(&answer, 1.0) && answer.failed_on.is_empty());
    // A device that never keeps what it loads is left in the end.
    let device = Scripted::new("a").runs([Deed::Fail(ErrorKind::StateLost); 99]);
    let scene = Scene::new(&[&device]);
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(error.to_string().contains("it could not begin there"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_lost_its_engine_is_tried_again_until_the_third_time() {
    let device = Scripted::new("a").runs([Deed::LoseEngine; 2]);
    let scene = Scene::new(&[&device]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert!(is_right(&answer, 1.0));
    assert_eq!((answer.failed_on.len(), loads(&device)), (2, 3));
    let device = Scripted::new("a").runs([Deed::LoseEngine; 9]);
    let scene = Scene::new(&[&device]);
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(matches!(&error, RunError::Failed(failures) if failures.len() == 3), "{error}");
    assert!(error.to_string().contains("it was told to lose its engine"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_under_which_the_engine_is_lost_is_run_one_by_one() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 4, u64::MAX);
    together(&scene, 0..4).await;
    let dying = device.clone().runs([Deed::LoseEngine]);
    assert_eq!(together(&scene, 4..8).await, [1; 4]);
    assert_eq!(loads(&dying), 2);
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn what_a_device_cannot_do_does_not_keep_it_from_other_work() {
    let device = Scripted::new("a");
    let scene = Scene::new(&[&device]);
    scene.run(&request(2, 0.0)).await.unwrap();
    let device = device.runs([Deed::Fail(ErrorKind::Device); 6]);
    for _ in 0..6 {
        scene.run(&request(1, 1.0)).await.unwrap_err();
    }
    let asked = Instant::now();
    assert!(is_right(&scene.run(&request(2, 1.0)).await.unwrap(), 1.0));
    assert!(asked.elapsed().is_zero(), "{:?}", asked.elapsed());
    assert_eq!(runs(&device).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_loss_while_nothing_runs_costs_a_request_nothing() {
    let device = Scripted::new("a");
    let scene = Scene::new(&[&device]);
    scene.run(&request(1, 1.0)).await.unwrap();
    device.lose();
    let answer = scene.run(&request(1, 2.0)).await.unwrap();
    assert!(answer.failed_on.is_empty());
    assert_eq!(loads(&device), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_under_which_three_devices_failed_is_answered_with_an_error() {
    let devices = ["a", "b", "c", "d"].map(|name| Scripted::new(name).runs([Deed::Go]));
    let scene = Scene::new(&devices.each_ref());
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    let RunError::Failed(failures) = &error else { panic!("{error}") };
    let names: Vec<&str> = failures.iter().map(|failure| failure.device.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(error.to_string().contains("b: device failed: it was told to go"), "{error}");
    assert_eq!(devices[3].log(), Vec::<String>::new(), "not a fourth");
    assert!(scene.is_clean());
}

#[tokio::test(start_paused = true)]
async fn two_failures_are_survived() {
    let devices = ["a", "b"].map(|name| Scripted::new(name).runs([Deed::Go]));
    let last = Scripted::new("c");
    let scene = Scene::new(&[&devices[0], &devices[1], &last]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert!(is_right(&answer, 1.0));
    assert_eq!(answer.failed_on.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_device_is_tried_again_after_a_pause_that_grows() {
    let device = Scripted::new("a").runs([Deed::Fail(ErrorKind::Timeout); 2]);
    let scene = Scene::new(&[&device]);
    let asked = Instant::now();
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert_eq!(answer.failed_on.len(), 2);
    assert!(asked.elapsed() >= Duration::from_millis(300), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_device_that_says_no_is_believed_if_it_is_the_only_one() {
    let device = Scripted::new("a").runs([Deed::Fail(ErrorKind::Device); 9]);
    let scene = Scene::new(&[&device]);
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(matches!(&error, RunError::NoDevice(passed) if passed.len() == 1), "{error}");
    assert_eq!(runs(&device).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_says_no_is_not_believed_while_there_is_another() {
    let broken = Scripted::new("a").runs([Deed::Fail(ErrorKind::Device); 9]);
    let other = Scripted::new("b");
    let scene = Scene::new(&[&broken, &other]);
    assert!(is_right(&scene.run(&request(1, 1.0)).await.unwrap(), 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_request_is_tried_once_and_one_without_memory_on_a_second_device() {
    for (kind, tried) in [(ErrorKind::Caller, 1), (ErrorKind::Memory, 2)] {
        let devices = ["a", "b", "c"].map(|name| Scripted::new(name).runs([Deed::Fail(kind); 9]));
        let scene = Scene::new(&devices.each_ref());
        let error = scene.run(&request(1, 1.0)).await.unwrap_err();
        match (kind, &error) {
            (ErrorKind::Caller, RunError::Device(error)) => assert_eq!(error.kind(), kind),
            (ErrorKind::Memory, RunError::NoDevice(_)) => {}
            _ => panic!("{error}"),
        }
        assert_eq!(devices.iter().map(|device| runs(device).len()).sum::<usize>(), tried);
    }
    let small = Scripted::new("small").runs([Deed::Fail(ErrorKind::Memory); 9]);
    let scene = Scene::new(&[&small, &Scripted::new("large")]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert_eq!(answer.outcome.device.name, "large");
}

#[tokio::test(start_paused = true)]
async fn a_busy_device_is_waited_for() {
    let device = Scripted::new("a").runs([Deed::Fail(ErrorKind::Busy); 5]);
    let scene = Scene::new(&[&device]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert!(is_right(&answer, 1.0));
    assert!(answer.failed_on.is_empty());
}

#[tokio::test(start_paused = true)]
async fn that_a_model_cannot_be_loaded_is_remembered_for_a_while() {
    let device = Scripted::new("a").loads([Deed::Fail(ErrorKind::Device); 1]);
    let scene = Scene::new(&[&device]);
    for _ in 0..3 {
        let error = scene.run(&request(1, 1.0)).await.unwrap_err();
        assert!(error.to_string().contains("it was told to fail"), "{error}");
    }
    assert_eq!(loads(&device), 1);
    assert!(scene.run(&request(2, 1.0)).await.is_ok(), "another model is another matter");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_one_device_refuses_costs_those_who_wait_for_another_nothing() {
    for kind in [ErrorKind::Memory, ErrorKind::Device] {
        let working = Scripted::with("working", true, Duration::from_millis(1));
        let scene = Scene::new(&[&working]);
        scene.run(&request(1, 0.0)).await.unwrap();
        // With so many waiting, it pays to load the model here too.
        let weak = Scripted::new("weak").loads([Deed::Fail(kind); 9]);
        scene.attach(&weak, 1);
        let requests: Vec<_> = (0u16..900).map(|value| request(1, value.into())).collect();
        let answers = join_all(requests.iter().map(|request| scene.run(request))).await;
        for (value, answer) in (0u16..900).zip(&answers) {
            assert!(is_right(answer.as_ref().unwrap(), value.into()), "{kind}");
        }
        assert_eq!(loads(&weak), 1, "it is not asked again and again");
        assert!(scene.is_clean());
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_is_given_up_when_a_second_device_refuses_it() {
    let devices =
        ["a", "b", "c"].map(|name| Scripted::new(name).loads([Deed::Fail(ErrorKind::Memory); 9]));
    let scene = Scene::new(&devices.each_ref());
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(matches!(error, RunError::NoDevice(_)), "{error}");
    assert_eq!(devices.each_ref().map(loads), [1, 1, 0]);
    // One that comes later and can does not help: two have said no.
    scene.attach(&Scripted::new("d"), 1);
    assert!(scene.run(&request(1, 1.0)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_the_only_device_refused_is_tried_on_one_that_comes_later() {
    let weak = Scripted::new("weak").loads([Deed::Fail(ErrorKind::Memory); 9]);
    let scene = Scene::new(&[&weak]);
    assert!(scene.run(&request(1, 1.0)).await.is_err());
    scene.attach(&Scripted::new("strong"), 1);
    assert!(is_right(&scene.run(&request(1, 1.0)).await.unwrap(), 1.0));
    assert_eq!(loads(&weak), 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_takes_its_devices_along_while_it_loads_is_given_up() {
    let devices = ["a", "b", "c", "d"].map(|name| Scripted::new(name).loads([Deed::Go]));
    let scene = Scene::new(&devices.each_ref());
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(matches!(error, RunError::NoDevice(_)), "{error}");
    assert_eq!(devices.each_ref().map(loads), [1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_is_lost_is_tried_again_but_not_for_ever() {
    let device = Scripted::new("a").loads([Deed::Fail(ErrorKind::Timeout); 2]);
    let scene = Scene::new(&[&device]);
    assert!(is_right(&scene.run(&request(1, 1.0)).await.unwrap(), 1.0));
    let device = Scripted::new("a").loads([Deed::Fail(ErrorKind::Timeout); 9]);
    let scene = Scene::new(&[&device]);
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(matches!(error, RunError::NoDevice(_)), "{error}");
    assert_eq!(loads(&device), 3);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_goes_while_it_loads_is_nobodys_end() {
    let (dying, other) = (Scripted::new("dying").loads([Deed::Go]), Scripted::new("other"));
    let scene = Scene::new(&[&dying, &other]);
    let answer = scene.run(&request(1, 1.0)).await.unwrap();
    assert_eq!(answer.outcome.device.name, "other");
    let alone = Scripted::new("alone").loads([Deed::Go]);
    let scene = Scene::new(&[&alone]);
    let error = scene.run(&request(1, 1.0)).await.unwrap_err();
    assert!(error.to_string().contains("no device is left"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_only_waits_outlives_any_number_of_devices() {
    // They cannot be heard, so nothing is started there.
    let devices: Vec<Scripted> =
        (0..9).map(|number| Scripted::new(&number.to_string()).away()).collect();
    let last = Scripted::new("last");
    let scene = Scene::new(&[&devices[0]]);
    let asked = request(1, 2.0);
    let departures = async {
        for (device, next) in devices.iter().zip(devices[1..].iter().chain([&last])) {
            scene.queued(1).await;
            device.go();
            scene.scheduler.change(|state| ((), state.refresh()));
            scene.attach(next, 1);
        }
    };
    let (answer, ()) = tokio::join!(scene.run(&asked), departures);
    let answer = answer.unwrap();
    assert!(is_right(&answer, 2.0) && answer.failed_on.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lost_its_device_waits_for_the_next_one_and_a_new_one_does_not() {
    let dying = Scripted::new("dying").runs([Deed::Go]);
    let next = Scripted::new("next");
    let scene = Scene::new(&[&dying]).restarting();
    let (bereft, fresh) = (request(1, 1.0), request(1, 2.0));
    let restart = async {
        while scene.scheduler.state().account.failovers == 0 {
            tokio::task::yield_now().await;
        }
        let told = scene.run(&fresh).await;
        assert!(matches!(told, Err(RunError::NoDevice(_))), "{told:?}");
        tokio::time::sleep(Duration::from_secs(15)).await;
        scene.attach(&next, 1);
    };
    let (answer, ()) = tokio::join!(scene.run(&bereft), restart);
    assert!(is_right(&answer.unwrap(), 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_also_ends_the_wait_for_the_next_device() {
    let dying = Scripted::new("dying").runs([Deed::Go]);
    let scene = Scene::new(&[&dying]).restarting();
    let mut asked = request(1, 1.0);
    asked.deadline = Some(Duration::from_secs(3));
    let since = Instant::now();
    let error = scene.run(&asked).await.unwrap_err();
    assert!(matches!(error, RunError::Expired(_)), "{error}");
    assert_eq!(since.elapsed().as_secs(), 3);
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
    while !scene.scheduler.serves(super::queue::Wanted::new(crate::scripted::CHOICE, false)) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
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
