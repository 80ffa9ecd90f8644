//! Files that others could have written: not used, reported once, and nothing hangs.

use crate::folder::{COMPILER, Folder, LARGE, key, warnings};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tessera_runtime::DiskStore;
use tessera_support::StableHasher;
use tessera_target::ObjectStore;
use tessera_trust::Trust;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn one_entry() -> (Folder, PathBuf) {
    let folder = Folder::new();
    folder.store().put(key("a"), "a", b"code");
    let file = folder.files().remove(0);
    (folder, file)
}

/// A store finds nothing and says why, once; the next one can be used.
fn refused(folder: &Folder) -> String {
    let store = folder.store();
    assert_eq!(store.get(key("a")), None);
    assert_eq!(store.get(key("a")), None);
    let mut reported = warnings(&store);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("W_CACHE_UNTRUSTED: "), "{reported:?}");
    reported.remove(0)
}

/// What a forger can do who knows all of this program: the checksum's key is public.
fn with_right_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let (seal, lead) = (8 + 4 + 32, 8 + 4 + 32 + 16);
    let checksum = StableHasher::of_bytes(&bytes[lead..]);
    bytes[seal..lead].copy_from_slice(&checksum.0);
    bytes
}

#[test]
fn what_is_written_is_the_users_alone() {
    let (folder, file) = one_entry();
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    let secret = folder.secret().join("cache-key");
    assert_eq!((mode(&folder.secret()), mode(&secret)), (0o700, 0o600));
    assert_eq!(fs::read(&secret).unwrap().len(), 32);
    assert_eq!(fs::read_dir(folder.secret()).unwrap().count(), 1);
}

#[test]
fn a_forged_entry_is_not_used() {
    let (folder, file) = one_entry();
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, with_right_checksum(bytes)).unwrap();
    assert!(refused(&folder).ends_with("it was not written with the user's key"));
    assert!(!file.exists());
}

#[test]
fn an_entry_of_another_users_key_is_not_used() {
    let (folder, _) = one_entry();
    fs::remove_dir_all(folder.secret()).unwrap();
    assert!(refused(&folder).ends_with("has no key"));
    let (folder, _) = one_entry();
    fs::write(folder.secret().join("cache-key"), [7; 32]).unwrap();
    assert!(refused(&folder).ends_with("it was not written with the user's key"));
    folder.store().put(key("a"), "a", b"code");
    assert!(folder.store().get(key("a")).is_some());
}

#[test]
fn a_fifo_a_link_and_a_folder_in_the_place_of_an_entry_are_not_waited_for_or_followed() {
    let (folder, file) = one_entry();
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(refused(&folder).ends_with("is a link"));
    assert!(elsewhere.exists() && file.symlink_metadata().is_err());
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert!(refused(&folder).ends_with("is not a regular file"));
    fs::create_dir(&file).unwrap();
    assert!(refused(&folder).ends_with("is not a regular file"));
    let listing = folder.store().entries();
    assert_eq!((listing.entries.len(), listing.warnings.len()), (0, 0));
}

#[test]
fn files_and_folders_that_others_can_write_are_not_used() {
    let (folder, file) = one_entry();
    for bad in [0o620, 0o602, 0o666] {
        chmod(&file, bad);
        assert!(refused(&folder).contains("can be written by others"), "{bad:o}");
        folder.store().put(key("a"), "a", b"code");
    }
    let shard = file.parent().unwrap();
    chmod(shard, 0o770);
    assert!(refused(&folder).ends_with("can be written by others (mode 770)"));
    assert!(file.exists(), "it is behind a folder that is not trusted");
    chmod(shard, 0o700);
    for bad in [0o770, 0o707, 0o1777] {
        chmod(folder.path(), bad);
        let reported = refused(&folder);
        assert!(
            reported.contains("is not used") && reported.ends_with(&format!("(mode {bad:o})")),
            "{reported}"
        );
        // Nothing is written either, and memory serves.
        let store = folder.store();
        store.put(key("b"), "b", b"code");
        assert_eq!(store.get(key("b")).as_deref(), Some(&b"code"[..]));
        assert_eq!(folder.files(), [file.as_path()]);
        assert_eq!(folder.store().entries().warnings.len(), 1);
        assert_eq!(folder.store().clear().warnings.len(), 1);
    }
    chmod(folder.path(), 0o755);
    assert!(folder.store().get(key("a")).is_some());
}

#[test]
fn a_folder_that_is_a_link_below_the_cache_is_not_followed() {
    let (folder, file) = one_entry();
    let shard = file.parent().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(shard, &elsewhere).unwrap();
    symlink(&elsewhere, shard).unwrap();
    assert!(refused(&folder).ends_with("is a link"));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

/// Eviction and `clear` remove files: they must not be led elsewhere either.
#[test]
fn a_link_in_the_place_of_the_entries_is_not_followed_by_who_removes() {
    let (folder, file) = one_entry();
    let (objects, elsewhere) = (folder.path().join("objects"), folder.path().join("elsewhere"));
    fs::rename(&objects, &elsewhere).unwrap();
    symlink(&elsewhere, &objects).unwrap();
    assert!(refused(&folder).ends_with("objects is a link"));
    let store = DiskStore::new(folder.path(), COMPILER, 1, folder.trust());
    store.put(key("b"), "b", b"");
    assert_eq!(store.clear().entries, 0);
    assert!(elsewhere.join(file.strip_prefix(&objects).unwrap()).exists());
}

#[test]
fn the_cache_itself_may_be_a_link_of_the_users() {
    let (folder, _) = one_entry();
    let link = folder.path().with_extension("link");
    symlink(folder.path(), &link).unwrap();
    let store = DiskStore::new(&link, COMPILER, LARGE, folder.trust());
    assert!(store.get(key("a")).is_some());
    fs::remove_file(&link).unwrap();
}

#[test]
fn a_key_that_others_can_reach_or_that_is_cut_is_not_used() {
    let (folder, _) = one_entry();
    let secret = folder.secret().join("cache-key");
    chmod(&secret, 0o640);
    assert!(refused(&folder).ends_with("can be read by others (mode 640)"));
    chmod(&secret, 0o600);
    chmod(&folder.secret(), 0o777);
    assert!(refused(&folder).contains("can be written by others (mode 777)"));
    chmod(&folder.secret(), 0o700);
    for bytes in [0, 31, 33] {
        fs::write(&secret, vec![1; bytes]).unwrap();
        assert!(refused(&folder).ends_with("does not have 32 bytes"), "{bytes}");
    }
    let elsewhere = folder.secret().join("elsewhere");
    fs::write(&elsewhere, [0; 32]).unwrap();
    fs::remove_file(&secret).unwrap();
    symlink(&elsewhere, &secret).unwrap();
    assert!(refused(&folder).ends_with("is a link"));
}

#[test]
fn the_key_is_never_in_the_cache() {
    let folder = Folder::new();
    let inside = folder.path().join("tessera");
    let trust = Trust::Own(std::sync::Arc::new(tessera_trust::Keeper::new(&inside)));
    let store = DiskStore::new(folder.path(), COMPILER, LARGE, trust);
    store.put(key("a"), "a", b"code");
    assert!(warnings(&store)[0].ends_with("its key would be in it"));
    assert!(folder.files().is_empty() && !inside.exists());
}

/// Only root can make what is root's.
#[test]
fn a_shared_cache_is_roots_up_to_the_top_and_is_not_written() {
    let (folder, file) = one_entry();
    let shared = |dir: &Path| DiskStore::new(dir, COMPILER, LARGE, Trust::Shared);
    let reported = |store: &DiskStore| {
        assert_eq!(store.get(key("a")), None);
        let reported = warnings(store);
        assert_eq!(reported.len(), 1, "{reported:?}");
        reported[0].clone()
    };
    if tessera_trust::user() != 0 {
        assert!(reported(&shared(folder.path())).contains("belongs to another user"));
        return;
    }
    // The folder for temporary files is everybody's.
    assert!(
        reported(&shared(folder.path())).ends_with("/tmp can be written by others (mode 1777)")
    );
    // Root's home is below folders that are root's.
    let home = std::env::home_dir().unwrap_or_default();
    if tessera_trust::check_above(&home).is_err() {
        return;
    }
    let top = Away(home.join(format!(".tessera-shared-{}", std::process::id())));
    let moved = top.0.join("cache");
    fs::create_dir(&top.0).unwrap();
    chmod(&top.0, 0o755);
    assert!(
        Command::new("cp").arg("-a").arg(folder.path()).arg(&moved).status().unwrap().success()
    );
    let path = moved.join(file.strip_prefix(folder.path()).unwrap());
    let found = shared(&moved);
    assert_eq!(found.get(key("a")).as_deref(), Some(&b"code"[..]));
    found.put(key("b"), "b", b"code");
    assert_eq!(shared(&moved).get(key("b")), None);
    assert_eq!(found.entries().entries.len(), 1);
    assert_eq!((found.clear().warnings.len(), path.exists()), (1, true));
    for place in [&path, &path.parent().unwrap().to_path_buf(), &moved, &top.0] {
        let good = mode(place);
        chmod(place, good | 0o020);
        assert!(reported(&shared(&moved)).contains("can be written by others"), "{place:?}");
        chmod(place, good);
    }
    // What is cut or stands under another name is noticed without a key, and left where it is.
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert!(reported(&shared(&moved)).ends_with("it is cut short") && path.exists());
    std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
    assert!(
        reported(&shared(&moved)).contains("belongs to another user (expected uid 0, got 12345)")
    );
}

/// A folder that goes when this does.
struct Away(PathBuf);

impl Drop for Away {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn entries_and_folders_of_another_user_are_not_used() {
    if tessera_trust::user() != 0 {
        return; // Only root can give files away.
    }
    let (folder, file) = one_entry();
    std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
    assert!(refused(&folder).contains("belongs to another user"));
    folder.store().put(key("a"), "a", b"code");
    std::os::unix::fs::chown(folder.path(), Some(12345), None).unwrap();
    assert!(refused(&folder).contains("is not used"));
    // A link that another user made is not followed, wherever it leads.
    std::os::unix::fs::chown(folder.path(), Some(0), None).unwrap();
    let link = folder.path().with_extension("link");
    symlink(folder.path(), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
    let store = DiskStore::new(&link, COMPILER, LARGE, folder.trust());
    assert_eq!(store.get(key("a")), None);
    assert!(warnings(&store)[0].ends_with("is a link that another user made"));
    fs::remove_file(&link).unwrap();
}

/// Many processes that start together all have the same key.
#[test]
fn the_key_is_made_once() {
    let folder = Folder::new();
    let keys: Vec<[u8; 32]> = std::thread::scope(|scope| {
        let make = || {
            let keeper = tessera_trust::Keeper::new(&folder.secret());
            keeper.key_or_new().unwrap().mac("a test", &[])
        };
        let all: Vec<_> = (0..16).map(|_| scope.spawn(make)).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(keys.windows(2).all(|two| two[0] == two[1]));
}
