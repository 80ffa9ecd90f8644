//! The first lines of a file: `; test: …`, `; level: …`, `; print: locs`.

#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    Roundtrip,
    Verify,
    /// Passes by name, run in this order.
    Pass(Vec<String>),
    /// The whole pipeline of the tile level.
    Pipeline,
    Interpret,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelName {
    Tile,
    Graph,
    Schedule,
    Staged,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Header {
    pub kind: Kind,
    pub level: LevelName,
    /// Roundtrip with `loc(…)` on each op.
    pub locs: bool,
}

impl Header {
    /// Reads the comment lines before the first line of IR.
    pub fn parse(text: &str) -> Result<Header, String> {
        let mut kind = None;
        let mut level = LevelName::Tile;
        let mut locs = false;
        for line in text.lines().take_while(|l| l.starts_with(';')) {
            let Some((key, value)) = line[1..].split_once(':') else { continue };
            let value = value.trim();
            match key.trim() {
                "test" => kind = Some(kind_of(value)?),
                "level" => {
                    level = match value {
                        "tile" => LevelName::Tile,
                        "graph" => LevelName::Graph,
                        "schedule" => LevelName::Schedule,
                        "staged" => LevelName::Staged,
                        other => return Err(format!("expected a level, got `{other}`")),
                    }
                }
                "print" if value == "locs" => locs = true,
                "print" => return Err(format!("expected `print: locs`, got `{value}`")),
                _ => {}
            }
        }
        let kind = kind.ok_or("expected a line `; test: …` at the top of the file")?;
        let any_level = matches!(kind, Kind::Roundtrip | Kind::Verify);
        if !any_level && level != LevelName::Tile {
            return Err("expected level tile for a test of passes or of a run".into());
        }
        Ok(Header { kind, level, locs })
    }
}

fn kind_of(value: &str) -> Result<Kind, String> {
    match value {
        "roundtrip" => Ok(Kind::Roundtrip),
        "verify" => Ok(Kind::Verify),
        "pipeline" => Ok(Kind::Pipeline),
        "interpret" => Ok(Kind::Interpret),
        other => match other.strip_prefix("pass=") {
            Some(names) => Ok(Kind::Pass(names.split(',').map(|n| n.trim().to_string()).collect())),
            None => Err(format!(
                "expected a test of roundtrip verify pass=<names> pipeline interpret, got `{other}`"
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_reads_kind_and_level() {
        let h = Header::parse("; test: verify\n; level: graph\n; a word\nfunc").unwrap();
        assert_eq!((h.kind, h.level), (Kind::Verify, LevelName::Graph));
        let h = Header::parse("; test: pass=a, b\n").unwrap();
        assert_eq!(h.kind, Kind::Pass(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn header_without_or_with_a_wrong_test_is_refused() {
        assert!(Header::parse("func @f() {\n}\n; test: verify\n").is_err());
        assert!(Header::parse("; test: rountrip\n").is_err());
        assert!(Header::parse("; test: pipeline\n; level: graph\n").is_err());
    }
}
