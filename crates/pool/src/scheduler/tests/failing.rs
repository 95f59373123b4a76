//! What becomes of requests when devices refuse, lose what they had, or go.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_devices::{ErrorKind, KeptTensor, TensorId};
use holdfast_graph::{DataType, Digest};
use tokio::time::Instant;

use super::{loads, runs, together};
use crate::carry::Ways;
use crate::choice::{Choice, Choices};
use crate::program::Kept;
use crate::request::{Priority, Request, RunError};
use crate::scheduler::queue::Wanted;
use crate::scheduler::turn::Turn;
use crate::scripted::{CHOICE, Deed, Scene, Scripted, is_right, request};

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
async fn a_request_that_lost_its_device_goes_on_to_its_next_choice_at_once() {
    let scene = Scene::new(&[&Scripted::new("dying").runs([Deed::Go])]).restarting();
    scene.attach_as(Choice::Cpu, &Scripted::new("other"), 1);
    let mut asked = request(1, 1.0);
    asked.choices = Choices::Ordered(vec![CHOICE, Choice::Cpu]);
    let since = Instant::now();
    let answer = scene.run(&asked).await.unwrap();
    assert_eq!((answer.outcome.device.name.as_str(), answer.failed_on.len()), ("other", 1));
    assert_eq!(answer.passed_over.len(), 1);
    assert!(since.elapsed().is_zero(), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_has_time_left_goes_on_when_a_device_takes_too_long() {
    let device = Scripted::new("a").runs([Deed::Fail(ErrorKind::Timeout)]);
    let scene = Scene::new(&[&device]);
    let mut asked = request(1, 1.0);
    asked.deadline = Some(Duration::from_secs(60));
    let (since, answer) = (Instant::now(), scene.run(&asked).await.unwrap());
    assert!(is_right(&answer, 1.0));
    // It is blamed, and so left alone for a while.
    assert_eq!((answer.failed_on.len(), since.elapsed().as_millis()), (1, 100));
}

#[tokio::test(start_paused = true)]
async fn who_has_time_left_goes_on_when_a_batch_takes_too_long() {
    let device = Scripted::new("a");
    let scene = Scene::with(&[&device], 4, u64::MAX);
    together(&scene, 0..4).await;
    let device = device.runs([Deed::Fail(ErrorKind::Timeout)]);
    scene.attach(&Scripted::new("other"), 1);
    let late =
        |value: u8| Request { deadline: Some(Duration::from_secs(60)), ..request(1, value.into()) };
    let requests: Vec<_> = (4..8).map(late).collect();
    let hold = scene.scheduler.hold();
    let all = join_all(requests.iter().map(|request| scene.run(request)));
    let (answers, ()) = tokio::join!(all, async { drop(hold) });
    for (value, answer) in (4u8..8).zip(answers) {
        assert!(is_right(&answer.unwrap(), value.into()));
    }
    assert_eq!(runs(&device).last().unwrap(), "[4.0, 5.0, 6.0, 7.0]", "the batch was lost");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_device_that_hangs_or_is_away_while_another_is_free() {
    for is_away in [false, true] {
        let device = Scripted::new("a");
        let scene = Scene::new(&[&device]);
        scene.run(&request(1, 0.0)).await.unwrap();
        let device = device.runs([Deed::Hang]);
        let (hung, asked) = (request(1, 1.0), request(1, 2.0));
        let others = async {
            scene.queued(0).await;
            let _ = is_away.then(|| device.clone().away());
            scene.attach(&Scripted::new("b"), 1);
            let answer = tokio::time::timeout(Duration::from_secs(1), scene.run(&asked)).await;
            assert_eq!(answer.unwrap().unwrap().outcome.device.name, "b");
        };
        tokio::select! {
            biased;
            _ = scene.run(&hung) => panic!("it hangs"),
            () = others => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_device_kept_is_not_forgotten_with_the_request() {
    let device = Scripted::new("a");
    // It has no room for it, so it is let go at once, unless it was lost before that.
    let scene = Scene::new(&[&device]);
    let asked = request(1, 1.0);
    let Ok(model) = scene.prepare(&asked, CHOICE).await else { panic!("it is prepared") };
    for (name, is_lost) in [("lost", true), ("kept", false)] {
        let (wanted, order) = (Wanted::new(CHOICE, false), (Priority::Normal, 0));
        let mut ticket = scene.scheduler.enqueue(wanted, order, &model, &asked.inputs, None, None);
        let Some(Turn::Run(mut lease)) = ticket.turn(None).await else { panic!("it runs alone") };
        let id = TensorId(name.to_owned());
        let tensor = KeptTensor { id, dtype: DataType::F32, dims: vec![1] };
        let (value, segment) = (Digest::of(b"value"), model.id);
        lease.kept.push(Kept { value, output: 0, segment, tensor });
        if is_lost {
            device.lose();
            scene.scheduler.refresh();
        }
        drop(lease);
    }
    let dropped = || device.log().into_iter().filter(|line| line.starts_with("drop")).collect();
    let mut lines: Vec<String> = dropped();
    while lines.is_empty() {
        tokio::task::yield_now().await;
        lines = dropped();
    }
    assert_eq!(lines, ["drop kept"]);
}

#[tokio::test(start_paused = true)]
async fn no_device_is_to_blame_for_a_caller_without_time() {
    let device = Scripted::with("a", true, Duration::from_millis(9));
    let scene = Scene::new(&[&device.runs([Deed::Fail(ErrorKind::Timeout)])]);
    let mut asked = request(1, 1.0);
    asked.deadline = Some(Duration::from_millis(5));
    let error = scene.run(&asked).await.unwrap_err();
    assert!(matches!(&error, RunError::Device(error) if error.kind() == ErrorKind::Timeout));
    assert_eq!(scene.scheduler.state().account.failovers, 0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_however_often_devices_go_meanwhile() {
    let devices: Vec<Scripted> =
        (0..99).map(|number| Scripted::new(&number.to_string()).away()).collect();
    let scene = Scene::new(&[&devices[0]]);
    let mut asked = request(1, 1.0);
    asked.deadline = Some(Duration::from_secs(3));
    let departures = async {
        for (device, next) in devices.iter().zip(&devices[1..]) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            device.go();
            scene.scheduler.change(|state| ((), state.refresh()));
            scene.attach(next, 1);
        }
    };
    let since = Instant::now();
    tokio::select! {
        told = scene.run(&asked) => assert!(matches!(told, Err(RunError::Expired(_))), "{told:?}"),
        () = departures => panic!("its deadline never passes"),
    }
    assert_eq!(since.elapsed().as_secs(), 4);
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
