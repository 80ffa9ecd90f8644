//! Words that the project used for things that have another name in the field. `docs/glossary.md` says which word to
//! write; identifiers count like prose.

use crate::repository::{files, text};

/// A retired word or phrase, and what to write. Words are those between anything that is no letter or digit, so that
/// `first_turn` and `FirstTurn` have the word `turn`.
const RETIRED: &[(&str, &str)] = &[
    ("turn", "iteration"),
    ("turns", "iterations"),
    ("engine", "tensor cores, TMA, asynchronous unit"),
    ("engines", "tensor cores, TMA, asynchronous units"),
    ("ring", "pipeline"),
    ("rings", "pipelines"),
    ("crew", "role instance, team"),
    ("crews", "role instances, teams"),
    ("giver", "scheduler warp"),
    ("seldom", "rarely; warp-uniform branch"),
    ("crooked", "misaligned"),
    ("repair", "help, slow path, rescale path"),
    ("repairs", "help, slow path, rescale path"),
    ("told", "reported, shown"),
    ("asked", "requested"),
    ("whoever", "the thread, the caller"),
    ("so many", "a number"),
    ("inside of", "inside"),
    ("outside of", "outside"),
    ("by now", "(leave it out)"),
    ("written down", "recorded"),
    ("under way", "in flight"),
    ("on its way", "in flight"),
    ("on their way", "in flight"),
    ("at once", "concurrently, immediately, together"),
    ("side by side", "contiguous, adjacent"),
    ("as they lie", "layout and strides"),
    ("as it lies", "layout and strides"),
    ("free reference", "lazy rescaling"),
    ("standing memory", "self-resetting workspace"),
    ("what moves", "active values (activity analysis)"),
    ("meet", "synchronise, overlap"),
    ("meets", "synchronises, overlaps"),
    ("matrix unit", "tensor core"),
    ("matrix units", "tensor cores"),
    ("tile | slope", "tile.value_and_grad"),
    ("product of matrices", "matmul"),
    ("products of matrices", "matmuls"),
    ("products of tiles", "MMAs"),
    ("products of warps", "MMAs of warps"),
    ("loop of products", "loop of MMAs"),
    ("loops of products", "loops of MMAs"),
];

/// Phrases in which such a word has its usual meaning.
const USUAL: &[&str] = &[
    "in turn",
    "in turns",
    "take turns",
    "takes turns",
    "taking turns",
    "turn into",
    "turns into",
    "turn off",
    "turns off",
    "turn on",
    "turns on",
    "turn out",
    "turns out",
    "turn around",
    "ring buffer",
    "ring buffers",
    // An algorithm of collectives.
    "| ring |",
    "sharp ring",
    "auditwheel repair",
    "move | turn",
];

/// Files that hold former names: the glossary, tables of aliases, records that are signed and a kernel that
/// they name, and this list; and a text to
/// train on.
const EXEMPT: &[&str] = &[
    "LICENSE",
    "crates/lower/src/stage/passes.rs",
    "crates/support/tests/structure/words.rs",
    "docs/glossary.md",
    "examples/garden.txt",
    "ledger/former_names.py",
    "ledger/ledger.jsonl",
    "python/tessera/base/former_names.py",
    "python/tessera/kernel/schedule.py",
    "python/tessera/kernels/move.py",
    "python/tests/test_former_names.py",
];

#[test]
fn files_use_no_retired_word() {
    let mut found = Vec::new();
    for file in files().into_iter().filter(|file| !EXEMPT.contains(&file.as_str())) {
        // A file that is not UTF-8 is not text.
        for (number, line) in (1..).zip(text(&file).unwrap_or_default().lines()) {
            for (word, instead) in retired(line) {
                found.push(format!("{file}:{number}: `{word}`: write {instead}"));
            }
        }
    }
    let count = found.len();
    found.truncate(40);
    assert!(found.is_empty(), "{count} retired words, see docs/glossary.md: {found:#?}");
}

fn retired(line: &str) -> Vec<(&'static str, &'static str)> {
    let mut line = format!(" {} ", words(line).join(" "));
    for phrase in USUAL {
        line = line.replace(&format!(" {phrase} "), " . ");
    }
    RETIRED.iter().copied().filter(|(word, _)| line.contains(&format!(" {word} "))).collect()
}

/// The words of a line in lower case, with `|` for punctuation; identifiers are taken apart.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        let begins = c.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit());
        if !c.is_alphanumeric() || begins {
            words.push(String::new());
        }
        // A phrase does not go across punctuation.
        if !c.is_alphanumeric() && c != '_' && !c.is_whitespace() {
            words.extend(["|".to_string(), String::new()]);
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is one").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn identifiers_and_phrases_are_found_and_usual_meanings_left() {
    let found = |line: &str| retired(line).into_iter().map(|(word, _)| word).collect::<Vec<_>>();
    assert_eq!(found("let first_turn = FirstTurn::new();"), ["turn"]);
    assert_eq!(found("/// Copies under way, side  by side."), ["under way", "side by side"]);
    assert!(found("they take tiles in turn, and return").is_empty());
    assert!(found("the string in brings_engineers, inside, of it").is_empty());
    assert_eq!(found("ts.tile.slope(f, x)"), ["tile | slope"]);
}
