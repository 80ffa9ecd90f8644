//! The records on disk, for the command line: list, export, import, merge.

use super::known::store;
use std::path::{Path, PathBuf};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_tune::{Record, Store, bundle};

fn failed(why: String) -> Diagnostics {
    let help = "`tessera tune --export` writes files of records, TESSERA_CACHE_DIR says where they are kept, and `tessera doctor` why not";
    Diagnostic::new(Code::E_ARGUMENT, why).help(help).into()
}

fn opened() -> Result<Store, Diagnostics> {
    store().ok_or_else(|| {
        failed(
            "no records are kept: there is no home directory, or the cache is not trusted".into(),
        )
    })
}

/// All records as JSON texts, and what could not be read.
pub fn list() -> Result<(Vec<String>, Vec<String>), Diagnostics> {
    let (records, faults) = opened()?.all();
    Ok((records.iter().map(Record::text).collect(), faults))
}

/// Removes all records; says how many.
pub fn clear() -> Result<usize, Diagnostics> {
    Ok(opened()?.clear())
}

/// Writes all records, or those of one kernel, into a file; says how many.
pub fn export(to: &Path, kernel: Option<&str>) -> Result<usize, Diagnostics> {
    let (mut records, _) = opened()?.all();
    records.retain(|r| kernel.is_none_or(|name| r.subject.kernel == name));
    bundle::write(to, &records).map_err(failed)?;
    Ok(records.len())
}

/// Adds the records of a file to those that are kept; says how many.
pub fn import(from: &Path) -> Result<usize, Diagnostics> {
    let (store, records) = (opened()?, bundle::read(from).map_err(failed)?);
    let count = records.len();
    for record in records {
        store.add(record, false).map_err(failed)?;
    }
    Ok(count)
}

/// Makes one file of several; says how many records it holds.
pub fn merge(to: &Path, from: &[PathBuf]) -> Result<usize, Diagnostics> {
    let mut all = Vec::new();
    for path in from {
        all.extend(bundle::read(path).map_err(failed)?);
    }
    let all = bundle::merge(all);
    bundle::write(to, &all).map_err(failed)?;
    Ok(all.len())
}
