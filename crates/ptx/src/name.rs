//! Names that the assembler accepts.

/// The entry point of a kernel: letters, digits and `_` of its name.
pub fn entry(name: &str) -> String {
    let clean: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("tessera_{clean}")
}
