//! NVIDIA's assembler, for tests of what it makes of our code.

use std::env;
use std::path::{Path, PathBuf};
use tessera_ptx::tools::Tools;

/// The top of the checkout.
pub fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for tests");
    Path::new(&package).ancestors().nth(2).unwrap().to_path_buf()
}

/// A folder of these tests.
pub fn folder(name: &str) -> PathBuf {
    root().join("crates/ptx/tests").join(name)
}

/// The assembler. `make test` installs and requires it; without it, these tests say so and pass.
pub fn tools() -> Option<Tools> {
    match Tools::find(&root()) {
        Ok(tools) => Some(tools),
        Err(why) if env::var_os("TESSERA_NEED_TOOLS").is_some() => panic!("{why}"),
        Err(why) => {
            println!("not assembled: {why}");
            None
        }
    }
}

pub fn blessing() -> bool {
    env::var_os("TESSERA_BLESS").is_some_and(|v| v == "1")
}
