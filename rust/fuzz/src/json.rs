//! Strict JSON (contract, section 3), one byte at a time into a tree.

/// A value with everything decoded but numbers, which stay their digits.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Tree>),
    /// Members in order, duplicates included.
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// A member's value; of duplicates the last.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        let Tree::Object(members) = self else {
            return None;
        };
        let mut found = members.iter().filter(|(name, _)| name == key);
        found.next_back().map(|(_, value)| value)
    }

    /// The same where null and missing are the same.
    pub fn known(&self, key: &str) -> Option<&Tree> {
        self.get(key).filter(|value| **value != Tree::Null)
    }

    /// The same with unique keys: of duplicates the last wins, at the first one's place.
    #[must_use]
    pub fn settled(self) -> Tree {
        match self {
            Tree::Array(elements) => Tree::Array(elements.into_iter().map(Tree::settled).collect()),
            Tree::Object(members) => {
                let mut unique: Vec<(String, Tree)> = Vec::new();
                for (key, value) in members {
                    let value = value.settled();
                    match unique.iter_mut().find(|(other, _)| *other == key) {
                        Some(same) => same.1 = value,
                        None => unique.push((key, value)),
                    }
                }
                Tree::Object(unique)
            }
            tree => tree,
        }
    }

    /// The string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements; none of anything else.
    pub fn elements(&self) -> &[Tree] {
        match self {
            Tree::Array(elements) => elements,
            _ => &[],
        }
    }
}

/// What a reader may do.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub max_depth: usize,
    /// Whether a line feed is a blank.
    pub line_feeds: bool,
}

/// Reads a whole text; none where it is no strict JSON.
pub fn read(text: &[u8], rules: Rules) -> Option<Tree> {
    let mut reader = Reader::new(text, rules);
    reader.blanks();
    let tree = reader.value(0)?;
    reader.blanks();
    (reader.at == text.len()).then_some(tree)
}

/// Reads the value that `text` begins with, and says where it ends.
pub fn read_prefix(text: &[u8], rules: Rules) -> Option<(Tree, usize)> {
    let mut reader = Reader::new(text, rules);
    let tree = reader.value(0)?;
    Some((tree, reader.at))
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    rules: Rules,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8], rules: Rules) -> Self {
        Self { text, at: 0, rules }
    }

    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Takes the next byte where it is this one.
    fn eat(&mut self, byte: u8) -> bool {
        let same = self.byte() == Some(byte);
        self.at += usize::from(same);
        same
    }

    fn blanks(&mut self) {
        while let Some(byte) = self.byte() {
            match byte {
                b' ' | b'\t' | b'\r' => {}
                b'\n' if self.rules.line_feeds => {}
                _ => break,
            }
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Option<Tree> {
        match self.byte()? {
            b'n' => self.word(b"null", Tree::Null),
            b't' => self.word(b"true", Tree::Bool(true)),
            b'f' => self.word(b"false", Tree::Bool(false)),
            b'"' => self.string().map(Tree::String),
            b'[' => self.array(depth + 1),
            b'{' => self.object(depth + 1),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8], tree: Tree) -> Option<Tree> {
        for byte in word {
            if !self.eat(*byte) {
                return None;
            }
        }
        Some(tree)
    }

    fn array(&mut self, depth: usize) -> Option<Tree> {
        if depth > self.rules.max_depth {
            return None;
        }
        self.at += 1;
        let mut elements = Vec::new();
        self.blanks();
        if self.eat(b']') {
            return Some(Tree::Array(elements));
        }
        loop {
            self.blanks();
            elements.push(self.value(depth)?);
            self.blanks();
            if self.eat(b']') {
                return Some(Tree::Array(elements));
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Tree> {
        if depth > self.rules.max_depth {
            return None;
        }
        self.at += 1;
        let mut members = Vec::new();
        self.blanks();
        if self.eat(b'}') {
            return Some(Tree::Object(members));
        }
        loop {
            self.blanks();
            if self.byte() != Some(b'"') {
                return None;
            }
            let key = self.string()?;
            self.blanks();
            if !self.eat(b':') {
                return None;
            }
            self.blanks();
            members.push((key, self.value(depth)?));
            self.blanks();
            if self.eat(b'}') {
                return Some(Tree::Object(members));
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Tree> {
        let start = self.at;
        self.eat(b'-');
        let digits = self.at;
        if self.eat(b'0') {
            if self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
                return None;
            }
        } else if !self.digits() {
            return None;
        }
        let int_digits = self.at - digits;
        let mut is_integer = true;
        if self.eat(b'.') {
            is_integer = false;
            if !self.digits() {
                return None;
            }
        }
        if self.eat(b'e') || self.eat(b'E') {
            is_integer = false;
            let _ = self.eat(b'+') || self.eat(b'-');
            if !self.digits() {
                return None;
            }
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).ok()?;
        let in_range = if is_integer {
            int_digits <= 4300
        } else {
            text.parse::<f64>().ok()?.is_finite()
        };
        in_range.then(|| Tree::Number(text.to_owned()))
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at > start
    }

    fn string(&mut self) -> Option<String> {
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let byte = self.byte()?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(bytes).ok(),
                0..=0x1f => return None,
                b'\\' => {
                    let character = self.escape()?;
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let byte = self.byte()?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut units = vec![self.unit()?];
                if (0xd800..0xdc00).contains(&units[0]) {
                    if !(self.eat(b'\\') && self.eat(b'u')) {
                        return None;
                    }
                    units.push(self.unit()?);
                }
                let mut decoded = char::decode_utf16(units);
                let character = decoded.next()?.ok()?;
                if decoded.next().is_some() {
                    return None;
                }
                character
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u16> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.byte()?).to_digit(16)?;
            self.at += 1;
            unit = unit << 4 | u16::try_from(digit).ok()?;
        }
        Some(unit)
    }
}
