//! `#[entry]`: what Python calls, with panics caught. It stands before `#[pyfunction]` or `#[pymethods]`
//! and puts the body of each function into `crate::report::guarded`, so that a panic is raised as
//! `ts.InternalError` and not as the exception of the binding's library, which no `except Exception` catches.
//!
//! A function that returns no `PyResult` returns one afterwards. Functions that the garbage
//! collector calls are not changed: they cannot raise.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Functions that may not raise.
const LEFT: [&str; 2] = ["__traverse__", "__clear__"];

#[proc_macro_attribute]
pub fn entry(_: TokenStream, item: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    let is_impl = tokens.iter().any(|t| is_word(t, "impl"))
        && !tokens.iter().take_while(|t| !is_word(t, "impl")).any(|t| is_word(t, "fn"));
    if !is_impl {
        return functions(&tokens, "").into_iter().collect();
    }
    let of = subject(&tokens);
    let inside = |t: &TokenTree| match t {
        TokenTree::Group(g) if g.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = g.stream().into_iter().collect();
            let mut out =
                Group::new(Delimiter::Brace, functions(&inner, &of).into_iter().collect());
            out.set_span(g.span());
            TokenTree::Group(out)
        }
        other => other.clone(),
    };
    tokens.iter().map(inside).collect()
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(i) if i.to_string() == word)
}

fn is_group(token: &TokenTree, of: Delimiter) -> bool {
    matches!(token, TokenTree::Group(g) if g.delimiter() == of)
}

/// `Kernel.` of `impl Kernel {…}`.
fn subject(tokens: &[TokenTree]) -> String {
    let after = tokens.iter().skip_while(|t| !is_word(t, "impl")).nth(1);
    after.map_or(String::new(), |t| format!("{t}."))
}

/// The same tokens with every function among them guarded.
fn functions(tokens: &[TokenTree], of: &str) -> Vec<TokenTree> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !is_word(&tokens[at], "fn") {
            out.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let name = tokens[at + 1].to_string();
        let find = |from: usize, of| (from..tokens.len()).find(|&i| is_group(&tokens[i], of));
        let (Some(params), Some(body)) =
            (find(at, Delimiter::Parenthesis), find(at, Delimiter::Brace))
        else {
            out.extend(tokens[at..].iter().cloned());
            break;
        };
        if LEFT.contains(&name.as_str()) {
            out.extend(tokens[at..=body].iter().cloned());
        } else {
            out.extend(tokens[at..=params].iter().cloned());
            guard(&mut out, &tokens[params + 1..body], &tokens[body], &format!("{of}{name}"));
        }
        at = body + 1;
    }
    out
}

/// The end of a function: what it returns, and its body.
fn guard(out: &mut Vec<TokenTree>, returns: &[TokenTree], body: &TokenTree, name: &str) {
    // After the two of `->`.
    let ty: TokenStream = returns.iter().skip(2).cloned().collect();
    let raises = returns.get(2).is_some_and(|t| is_word(t, "PyResult"));
    let text = match (returns.is_empty(), raises) {
        (_, true) => format!("-> {ty} {{ crate::report::guarded({name:?}, || BODY) }}"),
        (true, _) => {
            format!(
                "-> ::pyo3::PyResult<()> {{ crate::report::guarded({name:?}, || {{ (|| BODY)(); Ok(()) }}) }}"
            )
        }
        (false, false) => format!(
            "-> ::pyo3::PyResult<{ty}> {{ crate::report::guarded({name:?}, || Ok((|| BODY)())) }}"
        ),
    };
    let made: TokenStream = text.parse().unwrap_or_default();
    out.extend(with_body(made, body));
}

/// Puts the body where the text has a word for it, so that its lines are those of the source.
fn with_body(tokens: TokenStream, body: &TokenTree) -> Vec<TokenTree> {
    let one = |token: TokenTree| match token {
        TokenTree::Ident(i) if i.to_string() == "BODY" => body.clone(),
        TokenTree::Group(g) => {
            let inner = with_body(g.stream(), body).into_iter().collect();
            TokenTree::Group(Group::new(g.delimiter(), inner))
        }
        other => other,
    };
    tokens.into_iter().map(one).collect()
}
