//! Many records in one file, to hand to other machines.

use crate::json::Json;
use crate::record::{Record, Subject};
use crate::store;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Records as one text; the same records give the same text.
pub fn text(records: &[Record]) -> String {
    let merged = merge(records.to_vec());
    Json::object([("tessera_tuning", Json::List(merged.iter().map(Record::json).collect()))])
        .pretty()
}

pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    let json = Json::parse(text)?;
    let list = json.get("tessera_tuning").and_then(Json::as_list).ok_or("no `tessera_tuning`")?;
    list.iter().map(Record::of).collect()
}

/// One record for each subject, in the order of subjects.
pub fn merge(records: Vec<Record>) -> Vec<Record> {
    let mut whole: BTreeMap<Subject, Record> = BTreeMap::new();
    for record in records {
        let fresh = || Record::new(record.subject.clone());
        whole.entry(record.subject.clone()).or_insert_with(fresh).merge(record);
    }
    whole.into_values().collect()
}

pub fn read(path: &Path) -> Result<Vec<Record>, String> {
    let text = fs::read_to_string(path)
        .map_err(|e| format!("{} could not be read: {e}", path.display()))?;
    parse(&text).map_err(|why| format!("{} holds no tuning records: {why}", path.display()))
}

pub fn write(path: &Path, records: &[Record]) -> Result<(), String> {
    store::write(path, text(records).as_bytes(), false)
        .map_err(|e| format!("{} could not be written: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, subject};
    use crate::store::tests::Dir;

    #[test]
    fn files_hold_what_was_put_in_whatever_the_order() {
        let mut a = Record::new(subject());
        a.set(measured("BM=1", &[1.0]));
        let mut b = Record::new(Subject { kernel: "other".into(), ..subject() });
        b.set(measured("BM=2", &[2.0]));
        let mut more = Record::new(subject());
        more.set(measured("BM=3", &[3.0]));
        let one = text(&[a.clone(), b.clone(), more.clone()]);
        assert_eq!(one, text(&[more.clone(), b.clone(), a.clone()]));
        let dir = Dir::new("tune-bundle");
        fs::create_dir_all(&dir.0).unwrap();
        let path = dir.0.join("all.json");
        write(&path, &[a, b, more]).unwrap();
        let read = read(&path).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].rows.len(), 2);
        assert!(super::read(&dir.0.join("none")).unwrap_err().contains("could not be read"));
        assert!(parse("{}").is_err());
    }
}
