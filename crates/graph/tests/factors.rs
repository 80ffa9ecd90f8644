//! The text of factor rules.

use tessera_graph::FactorRule;

#[test]
fn rules_read_back_as_they_print() {
    for text in ["b h q D, b h K D, b h K E -> b h q E", "r, r -> r", " -> ", "n,  -> "] {
        let rule = FactorRule::parse(text).map(|rule| rule.to_string());
        let Ok(shown) = rule else { panic!("{text}") };
        assert_eq!(FactorRule::parse(&shown).map(|r| r.to_string()).ok(), Some(shown));
    }
    let rule = FactorRule::parse("b s d, d -> b s d").unwrap_or_else(|e| panic!("{}", e.message));
    assert_eq!(rule.operands[0], ["b", "s", "d"]);
    assert!(rule.check(&[3, 1], &[3]).is_ok());
    assert!(FactorRule::is_whole("D") && !FactorRule::is_whole("d"));
}

#[test]
fn rules_that_say_nothing_of_an_array_are_refused() {
    let message = |text: &str| FactorRule::parse(text).err().map(|e| e.message);
    assert_eq!(message("a b").as_deref(), Some("expected `operands -> results`, got `a b`"));
    assert_eq!(message("a 1 -> a").as_deref(), Some("expected names of factors, got `1`"));
    assert_eq!(
        message("a a -> a").as_deref(),
        Some("expected each factor once an array, got `a` again at dim 1")
    );
    assert_eq!(
        message("a -> a b").as_deref(),
        Some("expected factors of the operands, got `b` in a result")
    );
    let rule = FactorRule::parse("a b -> a").unwrap_or_else(|e| panic!("{}", e.message));
    let short = rule.check(&[2, 1], &[1]).err().map(|e| e.message);
    assert_eq!(short.as_deref(), Some("expected factors of 2 operands, got those of 1"));
    let flat = rule.check(&[1], &[1]).err().map(|e| e.message);
    assert_eq!(flat.as_deref(), Some("expected a factor for each of 1 dims of operand 0, got 2"));
}
