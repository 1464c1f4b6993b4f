//! Rates that are kept from one start to the next.

use super::*;

#[test]
fn rates_are_kept_for_the_same_machine_and_version_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("rockmill").join("model.json");
    assert_eq!(kept::load(&path, &host(), &gpu()), Ok(None));
    kept::save(&path, &host(), &gpu(), &rates()).expect("there is room");
    let kept = kept::load(&path, &host(), &gpu())
        .expect("it is sound")
        .expect("it is there");
    // The text may round the last digit.
    for device in [CPU, "cuda:0"] {
        let seconds = |rates: &Rates| {
            rates
                .predict(device, &large(), 3)
                .expect("it has rates")
                .seconds
        };
        assert!(
            (seconds(&kept) / seconds(&rates()) - 1.0).abs() < 1e-12,
            "{device}"
        );
    }
    let refusal = |host: &Host| kept::load(&path, host, &gpu()).expect_err("it is refused");
    for other in [
        Host { cores: 4, ..host() },
        Host {
            processor: "another".to_owned(),
            ..host()
        },
        Host {
            driver: "581".to_owned(),
            ..host()
        },
    ] {
        let why = refusal(&other);
        assert!(
            why.contains("another machine's") && why.contains("calibration runs again"),
            "{why}"
        );
    }
    let text = std::fs::read_to_string(&path).expect("it was written");
    for (from, to, said) in [
        ("\"version\": 5", "\"version\": 1", "version 1"),
        (
            "\"correction\": 1.0",
            "\"correction\": -1.0",
            "no machine has",
        ),
        ("\"crowded\": 1.5", "\"crowded\": 0.5", "no machine has"),
        ("\"crowded\": 1.5", "\"crowded\": 1e300", "no machine has"),
        ("\"crowded\": 1.2", "\"crowded\": 1e300", "no machine has"),
        ("\"host\": 0.9", "\"host\": 0.0", "no machine has"),
        ("\"device\": 0.6", "\"device\": 5.0", "no machine has"),
        ("\"to_device\": 5", "\"to_device\": -5", "no machine has"),
        (
            "\"to_device\": 50000000000.0",
            "\"to_device\": 1e-300",
            "no machine has",
        ),
        (
            "\"read\": 20000000000.0",
            "\"read\": 1e300",
            "no machine has",
        ),
        (
            "\"byte_in\": ",
            "\"byte_in\": 0.5, \"run\": ",
            "no machine has",
        ),
        ("\"entry\": ", "\"entry\": -", "no machine has"),
        ("\"entry\": ", "\"entry\": 1e9, \"run\": ", "no machine has"),
        ("\"entry\"", "\"entries\"", "no calibration"),
        ("\"cores\": 8,", "", "no calibration"),
        ("{", "", "no calibration"),
    ] {
        let broken = text.replacen(from, to, 1);
        assert_ne!(broken, text, "{from}");
        std::fs::write(&path, &broken).expect("there is room");
        let why = refusal(&host());
        assert!(why.contains(said) && !why.contains('\n'), "{from}: {why}");
    }
    std::fs::write(&path, vec![b' '; 2 << 20]).expect("there is room");
    assert!(refusal(&host()).contains("too many"));
    std::fs::write(&path, [0xff, 0xfe]).expect("there is room");
    assert!(refusal(&host()).contains("calibration runs again"));
}

#[test]
fn a_second_start_takes_what_the_first_has_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.json");
    let mut corrected = rates();
    corrected.cpu.correction = 3.0;
    kept::save(&path, &Host::here(), &GpuModels::new(), &corrected).expect("there is room");
    let model = Model::open_at(Some(path.clone()), &[], &idle()).expect("it is sound");
    assert_eq!(model.rates().cpu.correction, 3.0);
    let seconds = || model.time(CPU, &large(), 1).expect("it has rates").seconds;
    let before = seconds();
    model.observed(CPU, &large(), 1, took(2.0 * before));
    assert!(seconds() > before);
    model.keep();
    let again = Model::open_at(Some(path), &[], &idle()).expect("it is sound");
    assert!(again.rates().cpu.correction > 3.0);
}

#[test]
fn services_on_different_devices_keep_each_others_rates() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.json");
    let with = |names: &[&str], correction: f64| {
        let mut all = rates();
        let mut gpu = all.gpus.remove("cuda:0").expect("it has rates");
        gpu.correction = correction;
        all.cpu.correction = correction;
        all.gpus = names
            .iter()
            .map(|name| ((*name).to_owned(), gpu.clone()))
            .collect();
        all
    };
    let both = gpus(&[("cuda:0", "some GPU"), ("cuda:1", "another")]);
    let (one, other) = (gpu(), gpus(&[("cuda:1", "another")]));
    let save =
        |gpus: &GpuModels, rates: Rates| kept::save(&path, &host(), gpus, &rates).expect("room");
    let load = |gpus: &GpuModels| {
        kept::load(&path, &host(), gpus)
            .expect("sound")
            .expect("it is there")
    };
    let correction = |rates: &Rates, gpu| rates.gpus.get(gpu).map(|gpu| gpu.correction);
    save(&one, with(&["cuda:0"], 1.5));
    assert!(load(&other).gpus.is_empty());
    save(&both, with(&["cuda:0", "cuda:1"], 2.0));
    // It has used one of the two since.
    save(&other, with(&["cuda:1"], 3.0));
    let kept = load(&both);
    assert_eq!(correction(&kept, "cuda:0"), Some(2.0));
    assert_eq!(correction(&kept, "cuda:1"), Some(3.0));
    assert_eq!(kept.cpu.correction, 3.0);
    assert_eq!(load(&one).gpus.len(), 1);
    // A GPU of another make has that number now.
    assert!(load(&gpus(&[("cuda:0", "a new GPU")])).gpus.is_empty());
    save(&GpuModels::new(), with(&[], 1.0));
    assert_eq!(correction(&load(&both), "cuda:1"), Some(3.0));
}

#[test]
fn who_writes_at_the_same_time_loses_nothing() {
    const SERVICES: usize = 8;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.json");
    let names: Vec<_> = (0..SERVICES).map(|i| format!("cuda:{i}")).collect();
    let gpu = rates().gpus["cuda:0"].clone();
    std::thread::scope(|scope| {
        for name in &names {
            let rates = Rates {
                gpus: BTreeMap::from([(name.clone(), gpu.clone())]),
                ..rates()
            };
            let (path, gpus) = (&path, gpus(&[(name, "a GPU")]));
            scope.spawn(move || {
                // On a busy machine seven others may take longer than a service waits.
                while let Err(error) = kept::save(path, &host(), &gpus, &rates) {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                }
            });
        }
    });
    let all = gpus(
        &names
            .iter()
            .map(|name| (&**name, "a GPU"))
            .collect::<Vec<_>>(),
    );
    let kept = kept::load(&path, &host(), &all).expect("sound");
    assert_eq!(kept.expect("it is there").gpus.len(), SERVICES);
    let held = std::fs::File::open(dir.path().join("model.json.lock")).expect("it is there");
    held.lock().expect("nobody has it");
    let error = kept::save(&path, &host(), &all, &rates()).expect_err("somebody has it");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn another_machines_or_versions_rates_make_room_for_a_calibration() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.json");
    let open = |idle: &Idle| Model::open_at(Some(path.clone()), &[], idle);
    kept::save(&path, &host(), &gpu(), &rates()).expect("there is room");
    let stopped = idle();
    stopped.stop();
    let error = open(&stopped).expect_err("it was stopped");
    assert_eq!(error.kind, ErrorKind::Cancelled);
    let load = || kept::load(&path, &Host::here(), &GpuModels::new());
    load().expect_err("nothing was kept in its place");
    let found = open(&idle()).expect("the machine has rates");
    assert!(found.rates().are_sound());
    let text = std::fs::read_to_string(&path).expect("it was kept");
    assert!(load().expect("it is sound").is_some());
    std::fs::write(&path, text.replacen("\"version\": 5", "\"version\": 1", 1)).expect("room");
    open(&idle()).expect("the machine has rates");
    assert!(load().expect("it is sound").is_some());
}

#[test]
fn what_is_no_calibration_is_not_replaced_by_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("board.json");
    let save = || kept::save(&path, &host(), &gpu(), &rates());
    for mine in ["my notes", "{\"units\": 8}"] {
        std::fs::write(&path, mine).expect("there is room");
        let error = save().expect_err("it is somebody's");
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), mine);
    }
    for nobodys in ["", "{\"version\": 1}"] {
        std::fs::write(&path, nobodys).expect("there is room");
        save().expect("it makes room");
    }
}

#[test]
fn hosts_that_share_a_home_have_files_of_their_own() {
    let path = |host: &Host| kept::usual_path(host).expect("tests have a home");
    let newer = Host {
        driver: "581".to_owned(),
        ..host()
    };
    assert_eq!(
        path(&host()),
        path(&newer),
        "it takes the older one's place"
    );
    let other = "another".to_owned();
    for other in [
        Host { cores: 4, ..host() },
        Host {
            processor: other,
            ..host()
        },
    ] {
        assert_ne!(path(&host()), path(&other));
    }
}
