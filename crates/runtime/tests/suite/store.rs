//! Storing and finding.

use crate::folder::{COMPILER, Folder, LARGE, key, warnings};
use std::fs;
use tessera_runtime::DiskStore;
use tessera_target::ObjectStore;

#[test]
fn what_was_stored_is_found_by_this_store_and_by_the_next() {
    let folder = Folder::new();
    let store = folder.store();
    assert_eq!(store.get(key("a")), None);
    store.put(key("a"), "a for cpu", b"first");
    store.put(key("a"), "a for cpu", b"second");
    store.put(key("empty"), "nothing", b"");
    for store in [&store, &folder.store()] {
        assert_eq!(store.get(key("a")).as_deref(), Some(&b"second"[..]));
        assert_eq!(store.get(key("empty")).as_deref(), Some(&b""[..]));
        assert_eq!(store.get(key("b")), None);
        assert_eq!(warnings(store), [""; 0]);
    }
    let files = folder.files();
    assert_eq!(files.len(), 2);
    for file in files {
        let parts: Vec<_> =
            file.strip_prefix(folder.path()).unwrap().iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(parts[..2], ["objects", "v2"]);
        assert!(parts[3].len() == 32 && parts[3].starts_with(parts[2]) && parts[2].len() == 2);
    }
}

#[test]
fn builds_that_share_a_directory_have_separate_entries() {
    let folder = Folder::new();
    let (one, two) =
        (folder.store(), DiskStore::new(folder.path(), "0.1.0 other", LARGE, folder.trust()));
    one.put(key("a"), "of one", b"one");
    assert_eq!(two.get(key("a")), None);
    two.put(key("a"), "of two", b"two");
    assert_eq!(folder.store().get(key("a")).as_deref(), Some(&b"one"[..]));
    assert_eq!(two.entries().entries.len(), 2);
    assert_eq!((warnings(&one), warnings(&two)), (vec![], vec![]));
}

#[test]
fn nothing_is_made_before_the_first_write() {
    let folder = Folder::new();
    let store = DiskStore::new(&folder.path().join("cache"), COMPILER, LARGE, folder.trust());
    assert_eq!((store.get(key("a")), store.entries().entries.len()), (None, 0));
    assert_eq!((store.clear().entries, warnings(&store).len()), (0, 0));
    assert!(!folder.path().join("cache").exists());
}

#[test]
fn a_directory_that_cannot_be_written_leaves_memory_and_is_reported_once() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let store = DiskStore::new(&file.join("cache"), COMPILER, LARGE, folder.trust());
    for name in ["a", "b"] {
        assert_eq!(store.get(key(name)), None);
        store.put(key(name), name, name.as_bytes());
        assert_eq!(store.get(key(name)).as_deref(), Some(name.as_bytes()));
    }
    let reported = warnings(&store);
    assert_eq!(reported.len(), 1);
    assert!(
        reported[0].starts_with("W_CACHE_IO: the cache ") && reported[0].contains("written"),
        "{reported:?}"
    );
    let listing = store.entries();
    assert_eq!((listing.entries.len(), listing.warnings.len()), (0, 1));
    assert_eq!(store.clear().warnings.len(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), "in the way");
}

#[test]
fn entries_are_listed_by_last_use_and_cleared() {
    let folder = Folder::new();
    let store = folder.store();
    store.put(key("old"), "old\tkernel", b"12345");
    let old = folder.files().remove(0);
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::open(&old).unwrap().set_modified(hour_ago).unwrap();
    store.put(key("new"), "new kernel", b"123456");
    let foreign = old.with_file_name("notes.txt");
    fs::write(&foreign, "not the store's").unwrap();

    let listing = store.entries();
    let seen: Vec<_> = listing.entries.iter().map(|e| (e.key, e.about.as_str())).collect();
    assert_eq!(seen, [(key("new"), "new kernel"), (key("old"), "old kernel")]);
    assert!((3600..3700).contains(&listing.entries[1].age.as_secs()));
    assert_eq!(listing.entries[1].bytes, fs::metadata(&old).unwrap().len());
    assert!(listing.warnings.is_empty());

    let cleared = store.clear();
    let bytes: u64 = listing.entries.iter().map(|e| e.bytes).sum();
    assert_eq!((cleared.entries, cleared.bytes, cleared.warnings.len()), (2, bytes, 0));
    assert_eq!(folder.files(), [foreign]);
    assert_eq!(store.get(key("new")), None, "memory is cleared too");
}
