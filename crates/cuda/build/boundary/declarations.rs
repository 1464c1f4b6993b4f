//! Reads declarations of C++: constants, enums, and records of numbers and pointers.

use std::iter::Peekable;
use std::str::Chars;

/// A declaration that both sides share.
#[derive(Clone)]
pub enum Declaration {
    Constant(Constant),
    Record(Record),
}

/// A named number.
#[derive(Clone)]
pub struct Constant {
    pub docs: Vec<String>,
    pub name: String,
    /// A type of the kernels, such as `u32`.
    pub kind: String,
    pub value: u64,
}

/// A struct.
#[derive(Clone)]
pub struct Record {
    pub docs: Vec<String>,
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Clone)]
pub struct Field {
    pub docs: Vec<String>,
    pub name: String,
    pub kind: Kind,
}

#[derive(Clone)]
pub enum Kind {
    Plain(Type),
    Array(Type, u64),
    Function {
        returns: Type,
        takes: Vec<Parameter>,
    },
}

/// A type of a field or a parameter.
#[derive(Clone)]
pub struct Type {
    pub is_const: bool,
    pub base: String,
    pub stars: usize,
}

#[derive(Clone)]
pub struct Parameter {
    pub name: Option<String>,
    pub kind: Type,
    /// Whether it was declared as an array.
    pub is_array: bool,
}

impl Declaration {
    /// The functions of a record that launch kernels.
    pub fn stages(&self) -> impl Iterator<Item = &Field> {
        let fields = match self {
            Self::Record(record) => record.fields.as_slice(),
            Self::Constant(_) => &[],
        };
        fields
            .iter()
            .filter(|field| field.is_stage() && field.name != "probe")
    }
}

impl Field {
    /// Whether it is a function over a stream.
    pub fn is_stage(&self) -> bool {
        match &self.kind {
            Kind::Function { takes, .. } => {
                takes.first().is_some_and(|first| first.kind.base == "Exec")
            }
            _ => false,
        }
    }
}

/// The declarations of a header.
pub struct Header<'a> {
    path: &'a str,
    tokens: Vec<Token>,
    at: usize,
    names: Option<&'a [&'a str]>,
    pub declarations: Vec<Declaration>,
    earlier: &'a [Declaration],
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    /// Text of a line with nothing but a comment.
    Comment(String),
    /// An empty line.
    Gap,
    Word(String),
    Number(u64),
    Sign(char),
}

impl<'a> Header<'a> {
    /// The declarations with these names. Constants may use those of `earlier` headers.
    pub fn parse(
        path: &'a str,
        text: &str,
        names: Option<&'a [&'a str]>,
        earlier: &'a [Declaration],
    ) -> Self {
        let tokens = tokens(text);
        let mut header = Header {
            path,
            tokens,
            at: 0,
            names,
            declarations: Vec::new(),
            earlier,
        };
        header.read();
        let found = |name: &&&str| {
            header.declarations.iter().any(|declared| match declared {
                Declaration::Constant(constant) => constant.name == **name,
                Declaration::Record(record) => record.name == **name,
            })
        };
        // Enums are found by their constants alone.
        let is_enum = |name: &&&str| text.contains(&format!("enum {name} :"));
        let mut names = names.unwrap_or_default().iter();
        if let Some(missing) = names.find(|name| !found(name) && !is_enum(name)) {
            panic!("{path} does not declare {missing}");
        }
        header
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_none_or(|names| names.contains(&name))
    }

    fn fail(&self, what: &str) -> ! {
        let from = self.at.saturating_sub(8);
        let near = &self.tokens[from..(self.at + 4).min(self.tokens.len())];
        panic!(
            "{}: {what} near {near:?}; crates/cuda/build/boundary reads only plain declarations",
            self.path
        )
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Token {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token.unwrap_or_else(|| self.fail("the header ends"))
    }

    fn word(&mut self) -> String {
        match self.next() {
            Token::Word(word) => word,
            _ => self.fail("a name is missing"),
        }
    }

    fn is(&self, sign: char) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found == word)
    }

    fn takes(&mut self, sign: char) -> bool {
        let is = self.is(sign);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: char) {
        if !self.takes(sign) {
            self.fail(&format!("{sign} is missing"));
        }
    }

    /// Goes behind the bracket that closes the one at the current place.
    fn skip_block(&mut self) {
        let mut depth = 0;
        loop {
            match self.next() {
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Comments up to the next token. Those before an empty line belong to nothing.
    fn docs(&mut self) -> Vec<String> {
        let mut docs = Vec::new();
        loop {
            match self.peek() {
                Some(Token::Comment(text)) => docs.push(text.clone()),
                Some(Token::Gap) => docs.clear(),
                _ => return docs,
            }
            self.at += 1;
        }
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            let docs = self.docs();
            if self.at >= self.tokens.len() {
                return;
            }
            match self.next() {
                Token::Word(word) if word == "namespace" => {
                    while !self.takes('{') {
                        self.at += 1;
                    }
                }
                Token::Word(word) if word == "struct" => self.record(docs),
                Token::Word(word) if word == "enum" => self.enumeration(docs),
                Token::Word(word) if word == "constexpr" => self.constants(docs),
                Token::Sign('{') => {
                    self.at -= 1;
                    self.skip_block();
                }
                _ => {}
            }
        }
    }

    /// `u32 A = 1, B = A + 1;`. Functions, and constants that are not shared, are skipped.
    fn constants(&mut self, mut docs: Vec<String>) {
        let start = self.at;
        let (Token::Word(kind), Token::Word(_), Some(Token::Sign('='))) =
            (self.next(), self.next(), self.peek())
        else {
            self.at = start;
            return;
        };
        self.at -= 1;
        loop {
            let name = self.word();
            self.expect('=');
            if !self.wants(&name) {
                return;
            }
            let value = self.sum() & mask(&kind);
            let constant = Constant {
                docs: std::mem::take(&mut docs),
                name,
                kind: kind.clone(),
                value,
            };
            self.declarations.push(Declaration::Constant(constant));
            if !self.takes(',') {
                return self.expect(';');
            }
        }
    }

    fn enumeration(&mut self, docs: Vec<String>) {
        let name = self.word();
        self.expect(':');
        let kind = self.word();
        if !self.wants(&name) {
            return;
        }
        self.expect('{');
        let mut of_enum = docs;
        of_enum.push(format!("`{name}`."));
        let mut next = 0;
        loop {
            let mut docs = self.docs();
            if self.takes('}') {
                return self.expect(';');
            }
            let constant = self.word();
            if self.takes('=') {
                next = self.sum();
            }
            docs.splice(0..0, std::mem::take(&mut of_enum));
            let constant = Constant {
                docs,
                name: constant,
                kind: kind.clone(),
                value: next,
            };
            self.declarations.push(Declaration::Constant(constant));
            next += 1;
            if !self.takes(',') && !self.is('}') {
                self.fail("a comma is missing");
            }
        }
    }

    fn record(&mut self, docs: Vec<String>) {
        let name = match self.next() {
            Token::Word(name) => name,
            _ => return,
        };
        if !self.wants(&name) {
            while !self.is('{') && !self.is(';') {
                self.at += 1;
            }
            return;
        }
        self.expect('{');
        let mut fields = Vec::new();
        loop {
            let docs = self.docs();
            if self.takes('}') {
                break;
            }
            // A function of the record.
            if self.is_word("ROCKMILL_HD") {
                while !self.is('{') {
                    self.at += 1;
                }
                self.skip_block();
                continue;
            }
            self.fields(docs, &mut fields);
        }
        self.expect(';');
        self.declarations
            .push(Declaration::Record(Record { docs, name, fields }));
    }

    fn fields(&mut self, mut docs: Vec<String>, fields: &mut Vec<Field>) {
        let kind = self.kind();
        if self.takes('(') {
            self.expect('*');
            let name = self.word();
            self.expect(')');
            let takes = self.parameters();
            self.expect(';');
            fields.push(Field {
                docs,
                name,
                kind: Kind::Function {
                    returns: kind,
                    takes,
                },
            });
            return;
        }
        loop {
            let name = self.word();
            let kind = if self.takes('[') {
                let len = self.sum();
                self.expect(']');
                Kind::Array(kind.clone(), len)
            } else {
                Kind::Plain(kind.clone())
            };
            fields.push(Field {
                docs: std::mem::take(&mut docs),
                name,
                kind,
            });
            if !self.takes(',') {
                return self.expect(';');
            }
        }
    }

    fn parameters(&mut self) -> Vec<Parameter> {
        self.expect('(');
        let mut parameters = Vec::new();
        while !self.takes(')') {
            let kind = self.kind();
            let name = matches!(self.peek(), Some(Token::Word(_))).then(|| self.word());
            let is_array = self.takes('[');
            if is_array {
                self.expect(']');
            }
            parameters.push(Parameter {
                name,
                kind,
                is_array,
            });
            if !self.takes(',') && !self.is(')') {
                self.fail("a comma is missing");
            }
        }
        parameters
    }

    fn kind(&mut self) -> Type {
        let is_const = self.is_word("const");
        self.at += usize::from(is_const);
        let base = self.word();
        let mut stars = 0;
        while self.takes('*') {
            stars += 1;
        }
        Type {
            is_const,
            base,
            stars,
        }
    }

    /// `a + b`, `a - b`, `a << b`; with brackets where C++ would rank them differently.
    fn sum(&mut self) -> u64 {
        let left = self.value();
        match self.peek() {
            Some(Token::Sign('+')) => {
                self.at += 1;
                left.wrapping_add(self.value())
            }
            Some(Token::Sign('-')) => {
                self.at += 1;
                left.wrapping_sub(self.value())
            }
            Some(Token::Sign('<')) => {
                self.at += 1;
                self.expect('<');
                left << self.value()
            }
            _ => left,
        }
    }

    fn value(&mut self) -> u64 {
        match self.next() {
            Token::Number(number) => number,
            Token::Sign('~') => !self.value(),
            Token::Sign('(') => {
                let value = self.sum();
                self.expect(')');
                value
            }
            // `u64{1}`
            Token::Word(_) if self.takes('{') => {
                let value = self.sum();
                self.expect('}');
                value
            }
            Token::Word(name) => self.named(&name),
            _ => self.fail("a number is missing"),
        }
    }

    fn named(&self, name: &str) -> u64 {
        let all = self.declarations.iter().chain(self.earlier);
        let mut values = all.filter_map(|declared| match declared {
            Declaration::Constant(constant) if constant.name == name => Some(constant.value),
            _ => None,
        });
        values
            .next()
            .unwrap_or_else(|| self.fail("an unknown constant is used"))
    }
}

/// The bits of a type.
fn mask(kind: &str) -> u64 {
    match kind {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" => u64::MAX,
        _ => panic!("constants of type {kind} are not shared with Rust"),
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let is_directive = continues || line.starts_with('#');
        continues = is_directive && line.ends_with('\\');
        if is_directive || line.trim().is_empty() {
            tokens.push(Token::Gap);
            continue;
        }
        line_tokens(line, &mut tokens);
    }
    // Empty lines between other tokens than comments mean nothing.
    let mut kept: Vec<Token> = Vec::new();
    for token in tokens {
        if token != Token::Gap || matches!(kept.last(), Some(Token::Comment(_))) {
            kept.push(token);
        }
    }
    kept
}

fn line_tokens(line: &str, tokens: &mut Vec<Token>) {
    let (code, comment) = match line.split_once("//") {
        Some((code, comment)) => (code, Some(comment)),
        None => (line, None),
    };
    let mut chars = code.chars().peekable();
    while let Some(&first) = chars.peek() {
        if first.is_whitespace() {
            chars.next();
        } else if first.is_ascii_digit() {
            let digits = taken(&mut chars, |c| c.is_ascii_alphanumeric() || c == '\'');
            let digits = digits.replace('\'', "");
            let number = match digits.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits.trim_end_matches('u'), 16),
                None => digits.trim_end_matches('u').parse(),
            };
            // Numbers of functions, such as floats, are not read.
            tokens.push(number.map_or(Token::Sign('?'), Token::Number));
        } else if first.is_ascii_alphabetic() || first == '_' {
            tokens.push(Token::Word(taken(&mut chars, |c| {
                c.is_ascii_alphanumeric() || c == '_'
            })));
        } else {
            tokens.push(Token::Sign(first));
            chars.next();
        }
    }
    match comment {
        Some(text) if code.trim().is_empty() => tokens.push(Token::Comment(text.trim().to_owned())),
        _ => {}
    }
}

fn taken(chars: &mut Peekable<Chars<'_>>, belongs: impl Fn(char) -> bool) -> String {
    let mut taken = String::new();
    while let Some(next) = chars.next_if(|&next| belongs(next)) {
        taken.push(next);
    }
    taken
}
