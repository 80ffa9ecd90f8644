//! The driver core and the binding name no vendor of devices: they ask `target::device` and the registry.

use crate::repository::{files, text};

/// Vendors, their interfaces and their hardware, as words of identifiers.
const VENDORS: &str = "cuda nvidia ptx ptxas cubin nccl wgmma hopper blackwell ampere turing rocm hip amd intel gfx \
    level_zero oneapi metal vulkan sm70 sm75 sm80 sm89 sm90 sm100";

/// What is held to it.
const FOLDERS: [&str; 2] = ["crates/driver/src/", "crates/python/src/"];

/// Files and folders that may, each with the reason.
const MAY: &[(&str, &str)] = &[
    (
        "crates/driver/src/platforms.rs",
        "the registry: which platforms and backends there are, and their names",
    ),
    ("crates/driver/src/nvidia/", "joins the compiler to PTX with the devices that load PTX"),
    ("crates/driver/src/knobs.rs", "an environment variable names the program `ptxas`"),
    (
        "crates/python/src/array_interface.rs",
        "the protocol `__cuda_array_interface__` is one of CUDA devices",
    ),
    ("crates/python/src/readers.rs", "the attributes of PyTorch's and CuPy's arrays speak of CUDA"),
];

/// Names of protocols, which other libraries look for.
const PROTOCOLS: [&str; 2] = ["__cuda_array_interface__", "__cuda_stream__"];

#[test]
fn the_driver_core_and_the_binding_name_no_vendor() {
    let mut faults = Vec::new();
    let held = |file: &String| {
        file.ends_with(".rs")
            && FOLDERS.iter().any(|folder| file.starts_with(folder))
            && !MAY.iter().any(|(may, _)| file.starts_with(may))
    };
    let files = files();
    for file in files.iter().filter(|file| held(file)) {
        let text = text(file).unwrap_or_default();
        faults.extend(
            named(&text).into_iter().map(|(line, word)| format!("{file}:{line}: `{word}`")),
        );
    }
    for (may, _) in MAY {
        if !files.iter().any(|file| file.starts_with(may)) {
            faults.push(format!("{may} is listed in {} and does not exist", file!()));
        }
    }
    assert!(faults.is_empty(), "ask `target::device` or `platforms.rs`: {faults:#?}");
}

/// The identifiers of code that name a vendor, and features that do, with their lines. Unit tests may.
fn named(text: &str) -> Vec<(usize, String)> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    for (line, code) in (1..).zip(code_of(text).lines().zip(text.lines())) {
        let (code, whole) = code;
        let identifiers = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        for identifier in identifiers.filter(|i| !i.is_empty() && !PROTOCOLS.contains(i)) {
            if names_vendor(identifier) {
                found.push((line, identifier.to_string()));
            }
        }
        let feature = whole.split("feature = \"").nth(1).and_then(|rest| rest.split('"').next());
        if let Some(feature) = feature.filter(|feature| names_vendor(feature)) {
            found.push((line, format!("feature = {feature:?}")));
        }
    }
    found
}

/// Whether a word of an identifier, or two together, is a vendor's.
fn names_vendor(identifier: &str) -> bool {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in identifier.chars() {
        let begins = c.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit());
        if (c == '_' || begins) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    let is_vendor = |word: &str| VENDORS.split_whitespace().any(|vendor| vendor == word);
    words.iter().any(|word| is_vendor(word))
        || words.windows(2).any(|pair| is_vendor(&format!("{}_{}", pair[0], pair[1])))
}

/// The text with comments and literals left out; lines stay where they are.
fn code_of(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|&c| c != '\n') {
                    chars.next();
                }
            }
            '"' => {
                while let Some(c) = chars.next() {
                    match c {
                        // A line that goes on in the next one is a line all the same.
                        '\\' => out.extend(chars.next().filter(|&c| c == '\n')),
                        '"' => break,
                        '\n' => out.push('\n'),
                        _ => {}
                    }
                }
            }
            // A quote in a character, which begins no string.
            '\'' if chars.clone().next() == Some('"') => {
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out
}

#[test]
fn identifiers_and_features_are_found_and_words_in_texts_are_not() {
    let text = "// cuda\nlet x = \"cuda:0\";\nuse cuda::Device;\n#[cfg(feature = \"cuda\")]\nfn is_cuda() {}\n\
        let c = '\"'; let LevelZero = isPtx;\nfn __cuda_stream__() {}\nlet relevel_zeros = barcuda;\n\
        #[cfg(test)]\nmod tests { use ptx; }\n";
    let found: Vec<_> =
        named(text).into_iter().map(|(line, word)| format!("{line} {word}")).collect();
    assert_eq!(found, ["3 cuda", "4 feature = \"cuda\"", "5 is_cuda", "6 LevelZero", "6 isPtx"]);
}
