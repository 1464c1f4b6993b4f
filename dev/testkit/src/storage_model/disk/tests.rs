use super::*;

fn read(disk: &Disk, path: &str) -> Option<Vec<u8>> {
    let node = disk.open(Path::new(path)).ok()?;
    Some(disk.bytes(node).to_vec())
}

#[test]
fn a_file_takes_a_sync_of_its_own_and_one_of_its_folder() {
    let mut disk = Disk::default();
    let path = Path::new("/a");
    let file = disk.create(path).expect("a new file");
    disk.append(file, b"one");
    disk.sync(file, true);
    assert_eq!(read(&disk.after_crash(&mut Survival::Worst), "/a"), None);
    disk.sync_folder(Path::new("/"), true).expect("the root");
    assert!(disk.is_durable(path));
    disk.append(file, b"two");
    assert!(!disk.is_durable(path));
    let after =
        |survival: &mut Survival<'_>| read(&disk.after_crash(survival), "/a").expect("it is there");
    assert_eq!(after(&mut Survival::Worst), b"one");
    assert_eq!(after(&mut Survival::Best), b"onetwo");
}

#[test]
fn what_a_failed_sync_lost_does_not_come_back() {
    let mut disk = Disk::default();
    let root = Path::new("/");
    let [a, b] = ["/a", "/b"].map(Path::new);
    let file = disk.create(a).expect("a new file");
    disk.append(file, b"one");
    disk.sync(file, false);
    disk.append(file, b"two");
    disk.sync(file, true);
    disk.sync_folder(root, true).expect("the root");
    disk.create(b).expect("a new file");
    disk.sync_folder(root, false).expect("the root");
    disk.sync_folder(root, true).expect("the root");
    assert_eq!(read(&disk, "/a").expect("it is there"), b"onetwo");
    let after = disk.after_crash(&mut Survival::Best);
    assert_eq!(read(&after, "/a").expect("it is there"), b"\0\0\0two");
    assert_eq!(read(&after, "/b"), None);
    assert!(!disk.is_durable(a) && !disk.is_durable(b));
}

#[test]
fn room_that_was_made_reads_as_zeros_until_it_is_written() {
    let mut disk = Disk::default();
    let path = Path::new("/a");
    let file = disk.create(path).expect("a new file");
    disk.sync_folder(Path::new("/"), true).expect("the root");
    disk.reserve(file, 6);
    disk.append(file, b"one");
    assert_eq!(read(&disk, "/a").expect("it is there"), b"one\0\0\0");
    let after = |disk: &Disk, survival: &mut Survival<'_>| {
        read(&disk.after_crash(survival), "/a").expect("it is there")
    };
    assert_eq!(after(&disk, &mut Survival::Worst), b"");
    assert_eq!(after(&disk, &mut Survival::Best), b"one\0\0\0");
    disk.truncate(file, 4);
    disk.append(file, b"t");
    disk.sync(file, true);
    assert_eq!(after(&disk, &mut Survival::Worst), b"onet");
}

#[test]
fn what_was_removed_may_come_back_until_its_folder_is_synced() {
    let mut disk = Disk::default();
    let root = Path::new("/");
    disk.create(Path::new("/a")).expect("a new file");
    disk.sync_folder(root, true).expect("the root");
    disk.remove(Path::new("/a")).expect("it is there");
    assert!(read(&disk.after_crash(&mut Survival::Worst), "/a").is_some());
    disk.sync_folder(root, true).expect("the root");
    assert_eq!(read(&disk.after_crash(&mut Survival::Worst), "/a"), None);
}
